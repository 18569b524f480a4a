"""What the references of a run hold: a change of it is told at the next start, or stops the run."""

from __future__ import annotations

import asyncio
import hashlib
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from servers import BUCKET, Server
from waits import PATIENCE

from satchel import Outcome, Run, agent, run, run_async
from satchel.runtime.execution import resources
from satchel.workspace.inspect.load import look
from satchel.workspace.store import DiskStore

OLD, NEW = b"one,two", b"two,one"


def begin(workspace: Path, *named: str, listed: str = "") -> Any:
    """An agent whose first attempt fails and whose second returns."""
    (workspace / "workspace.yaml").write_text(f"format: 1\nrun_id: test-1\nagent: agent.py:main\n{listed}")

    @agent
    async def main(run: Run[Any]) -> str:
        for each in named:
            run.refer(each)
        if run.attempt == 1:
            raise ValueError("stopped")
        return "gone on"

    return main


def recorded(workspace: Path) -> dict[str, Any]:
    contents: dict[str, Any] = look(DiskStore(workspace)).moment.config.get("contents", {})
    return contents


def told(outcome: Outcome) -> list[str]:
    return [each.text for each in outcome.report.late if each.text.startswith("reference ")]


def short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:8]


CHANGED = f"reference data.csv has changed: it is 7 bytes, SHA-256 {short(NEW)}, and was 7 bytes, SHA-256 {short(OLD)}"


@pytest.mark.parametrize("by", ["the agent", "workspace.yaml"])
def test_a_file_that_has_changed_is_told_once_and_the_run_goes_on(workspace: Path, by: str) -> None:
    is_named = by == "the agent"
    main = begin(workspace, *(["data.csv"] if is_named else []), listed="" if is_named else "references: [data.csv]\n")
    (workspace / "data.csv").write_bytes(OLD)
    assert run(workspace, main).status == "failed"
    mtime = (workspace / "data.csv").stat().st_mtime_ns
    assert recorded(workspace) == {
        "data.csv": {"size": 7, "mtime_ns": mtime, "sha256": hashlib.sha256(OLD).hexdigest()}
    }
    (workspace / "data.csv").write_bytes(NEW)
    os.utime(workspace / "data.csv", ns=(mtime, mtime + 1))
    outcome = run(workspace, main)
    assert (outcome.status, outcome.result) == ("completed", "gone on")
    assert told(outcome) == [CHANGED]
    assert recorded(workspace)["data.csv"]["sha256"] == hashlib.sha256(NEW).hexdigest()


def test_a_file_of_the_same_size_and_time_is_not_read_again(workspace: Path) -> None:
    main = begin(workspace, "data.csv")
    (workspace / "data.csv").write_bytes(OLD)
    run(workspace, main)
    mtime = (workspace / "data.csv").stat().st_mtime_ns
    (workspace / "data.csv").write_bytes(NEW)  # only a reader could tell
    os.utime(workspace / "data.csv", ns=(mtime, mtime))
    assert told(run(workspace, main)) == []


def test_a_file_that_was_only_touched_has_not_changed(workspace: Path) -> None:
    main = begin(workspace, "data.csv", listed="on_reference: refuse\n")
    (workspace / "data.csv").write_bytes(OLD)
    run(workspace, main)
    os.utime(workspace / "data.csv", ns=(1, 1))
    outcome = run(workspace, main)
    assert outcome.status == "completed" and told(outcome) == []
    assert recorded(workspace)["data.csv"]["mtime_ns"] == 1, "or it would be read at each start"


def test_a_change_that_is_refused_pauses_the_run_until_it_is_put_back_or_accepted(workspace: Path) -> None:
    main = begin(workspace, "data.csv", listed="on_reference: refuse\n")
    (workspace / "data.csv").write_bytes(OLD)
    run(workspace, main)
    (workspace / "data.csv").write_bytes(NEW)
    os.utime(workspace / "data.csv", ns=(1, 1))
    for wake in (False, True):
        assert run(workspace, main, wake=wake).status == "paused"
        reason = look(DiskStore(workspace)).moment.reason
        assert reason.startswith(CHANGED) and "--accept-drift" in reason
    (workspace / "data.csv").write_bytes(OLD)
    assert run(workspace, main, wake=True).result == "gone on"


def test_a_change_that_is_accepted_is_told_and_recorded(workspace: Path) -> None:
    main = begin(workspace, "data.csv", listed="on_reference: refuse\n")
    (workspace / "data.csv").write_bytes(OLD)
    run(workspace, main)
    (workspace / "data.csv").write_bytes(NEW)
    os.utime(workspace / "data.csv", ns=(1, 1))
    outcome = run(workspace, main, accept_drift=True)
    assert outcome.result == "gone on" and told(outcome) == [CHANGED]
    assert recorded(workspace)["data.csv"]["sha256"] == hashlib.sha256(NEW).hexdigest()


def test_the_agent_goes_on_while_a_file_is_read(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, let_go = threading.Event(), threading.Event()
    read = resources._read

    def slowly(*args: Any) -> resources.ReferenceState:
        begun.set()
        assert let_go.wait(60)
        return read(*args)

    monkeypatch.setattr(resources, "_read", slowly)
    (workspace / "data.csv").write_bytes(OLD)

    @agent
    async def main(run: Run[Any]) -> None:
        run.refer("data.csv")
        await asyncio.to_thread(begun.wait, 60)
        assert recorded(workspace) == {}
        let_go.set()  # only a loop that runs comes here
        raise ValueError("stopped")

    assert isinstance(asyncio.run(run_async(workspace, main)).error, ValueError)
    assert recorded(workspace)["data.csv"]["sha256"] == hashlib.sha256(OLD).hexdigest(), "a stop waits for it"


def test_a_stop_does_not_wait_for_ever_for_a_file(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = []

    def endless(found: resources.ReferenceState, is_given_up: threading.Event) -> resources.ReferenceState:
        given_up.append(is_given_up.wait(60))
        return found

    monkeypatch.setattr(resources, "_read", endless)
    monkeypatch.setattr(resources, "LIMIT", 0.2)
    (workspace / "data.csv").write_bytes(OLD)
    assert run(workspace, begin(workspace, "data.csv")).status == "failed"
    assert recorded(workspace) == {}


def test_what_the_agent_itself_has_changed_can_be_named_again(workspace: Path) -> None:
    (workspace / "data.csv").write_bytes(OLD)

    @agent
    async def main(run: Run[Any]) -> str:
        run.refer("data.csv")
        if run.attempt == 1:
            async with asyncio.timeout(PATIENCE):
                while "contents" not in run._session.context.workspace.moment.config:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            (workspace / "data.csv").write_bytes(OLD + NEW)
            run.refer("data.csv")
            raise ValueError("stopped")
        return "gone on"

    run(workspace, main)
    assert told(run(workspace, main)) == []


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "one that can't be read"])
def test_what_has_no_content_to_read_is_only_looked_for(workspace: Path, kind: str) -> None:
    place = workspace / "data.csv"
    if kind == "a folder":
        place.mkdir()
    elif kind == "a pipe":
        os.mkfifo(place)
    else:
        place.write_bytes(OLD)
        place.chmod(0)
        if os.access(place, os.R_OK):
            pytest.skip("this user may read everything")
    main = begin(workspace, "data.csv")
    run(workspace, main)
    assert recorded(workspace) == {}
    assert run(workspace, main).result == "gone on"


class Site(http.server.BaseHTTPRequestHandler):
    headers_of: ClassVar[dict[str, str]] = {}

    def do_HEAD(self) -> None:
        self.send_response(200)
        for name, value in self.headers_of.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}/page?token=hidden"
        served.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "before, after, change",
    [
        ({"ETag": '"a1"'}, {"ETag": '"b2"'}, 'it is ETag "b2", and was ETag "a1"'),
        ({"Last-Modified": "Mon"}, {"Last-Modified": "Tue"}, "it is of Tue, and was of Mon"),
        ({"ETag": '"a1"', "Last-Modified": "Mon"}, {"ETag": '"a1"', "Last-Modified": "Tue"}, ""),
        ({}, {"ETag": '"b2"'}, ""),
        ({"Content-Length": "1"}, {"Content-Length": "2"}, ""),
    ],
)
def test_an_address_has_changed_when_its_etag_has(
    workspace: Path, site: str, before: dict[str, str], after: dict[str, str], change: str
) -> None:
    main = begin(workspace, site)
    Site.headers_of = before
    run(workspace, main)
    Site.headers_of = after
    said = told(run(workspace, main))
    assert said == ([f"reference {site.partition('?')[0]} has changed: {change}"] if change else [])


def test_an_object_has_changed_when_its_etag_has(
    workspace: Path, seaweedfs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    url = f"{seaweedfs.place()}/data.csv"
    key = url.removeprefix(f"s3://{BUCKET}/")
    put = seaweedfs.client.put_object
    was, same, now = (put(Bucket=BUCKET, Key=key, Body=data)["ETag"] for data in (OLD, OLD, NEW))
    assert was == same != now
    put(Bucket=BUCKET, Key=key, Body=OLD)
    main = begin(workspace, url, listed="on_reference: refuse\n")
    run(workspace, main)
    put(Bucket=BUCKET, Key=key, Body=NEW)
    assert run(workspace, main).status == "paused"
    reason = look(DiskStore(workspace)).moment.reason
    assert f"reference {url} has changed: it is 7 bytes, ETag {now}, and was 7 bytes, ETag {was}" in reason
    put(Bucket=BUCKET, Key=key, Body=OLD)
    assert run(workspace, main, wake=True).result == "gone on", "written again, it has another time"
