"""References: what a run refers to is still there when it goes on, or the run is paused with what is not."""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from waits import PATIENCE

from satchel import Run, agent, run
from satchel.runtime.execution import resources
from satchel.workspace.base.errors import UsageError
from satchel.workspace.inspect.load import look
from satchel.workspace.store import DiskStore


class Answers(http.server.BaseHTTPRequestHandler):
    """`/METHOD/CODE`: that answer to that method, 200 to the other; `/hang`: none before the test ends."""

    let_go = threading.Event()
    asked: ClassVar[list[str]] = []

    def answer(self) -> None:
        type(self).asked.append(f"{self.command} {self.path}")
        if self.path == "/hang":
            self.let_go.wait(60)
            return
        _, method, code = self.path.split("?")[0].split("/")
        self.send_response(int(code) if method in (self.command, "any") else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET = answer

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    Answers.let_go.clear()
    Answers.asked.clear()
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    served.daemon_threads = True
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{served.server_port}"
    finally:
        Answers.let_go.set()
        served.shutdown()
        thread.join()
        served.server_close()


def missing(root: Path, *looked_for: str) -> list[str]:
    return resources.missing_references(asyncio.run(resources.find_references(looked_for, str(root), {})))


def test_paths_are_looked_for_from_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "here.csv").write_text("")
    (tmp_path / "folder").mkdir()
    outside = tmp_path.parent / f"{tmp_path.name}.txt"
    outside.write_text("")
    there = ("here.csv", "folder", f"../{outside.name}", str(outside))
    assert missing(tmp_path, *there) == []
    assert missing(tmp_path, "gone.csv", "here.csv/inside", *there) == [
        "reference gone.csv is missing: there is no such file",
        "reference here.csv/inside is missing: it can't be inspected: Not a directory",
    ]


def test_urls_of_fsspec_are_opened_by_it(tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    with files.open("/data/customers.csv", "w") as opened:
        opened.write("a,b")
    (tmp_path / "a b.txt").write_text("")
    assert missing(tmp_path, "memory://data/customers.csv", f"file://{tmp_path}/a b.txt") == []
    assert missing(tmp_path, "memory://data/gone.csv", f"file://{tmp_path}/gone") == [
        "reference memory://data/gone.csv is missing: there is no such file",
        f"reference file://{tmp_path}/gone is missing: there is no such file",
    ]
    (said,) = missing(tmp_path, "nosuch://bucket/key")
    assert "it can't be inspected: ValueError" in said and "nosuch" in said


@pytest.mark.parametrize(
    "path, why",
    [
        ("/any/200", ""),
        ("/HEAD/405", ""),
        ("/HEAD/403", ""),
        ("/any/404", "the server answers 404 Not Found"),
        ("/any/500", "the server answers 500 Internal Server Error"),
        ("/GET/404", ""),
    ],
)
def test_an_address_is_asked_for_with_head_and_then_with_get(server: str, tmp_path: Path, path: str, why: str) -> None:
    assert missing(tmp_path, server + path) == ([f"reference {server}{path} is missing: {why}"] if why else [])
    assert Answers.asked[0] == f"HEAD {path}"
    assert (len(Answers.asked) == 2) == (path not in ("/any/200", "/GET/404"))


def test_a_server_that_is_not_there_or_does_not_answer(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_ANSWER", 0.2)
    hanging, refusing, nonsense = missing(tmp_path, f"{server}/hang", "http://127.0.0.1:1/", "http://")
    assert hanging.startswith(f"reference {server}/hang is missing: the server can't be reached: ")
    assert "Connection refused" in refusing and "can't be reached" in nonsense


def test_what_hangs_in_a_thread_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()
    monkeypatch.setattr(resources, "LIMIT", 0.2)
    monkeypatch.setattr(resources, "_of_path", lambda path: resources.ReferenceState(str(let_go.wait(60))))
    assert missing(tmp_path, "a", "b") == [
        "reference a is missing: no answer within 0.2 s",
        "reference b is missing: no answer within 0.2 s",
    ]
    let_go.set()


def test_all_are_looked_at_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(5, timeout=PATIENCE)
    monkeypatch.setattr(resources, "_of_path", lambda path: resources.ReferenceState("" * together.wait()))
    assert missing(tmp_path, *"abcde") == []


def test_secrets_are_not_told(server: str, tmp_path: Path) -> None:
    (said,) = missing(tmp_path, f"{server}/any/404?token=secret")
    assert "secret" not in said and f"{server}/any/404 is" in said
    assert resources.shown_reference("https://user:secret@host/a") == "https://host/a"
    assert resources.shown_reference("what?.txt") == "what?.txt"


def begin(workspace: Path, listed: str = "") -> Any:
    (workspace / "workspace.yaml").write_text(f"format: 1\nrun_id: test-1\nagent: agent.py:main\n{listed}")

    @agent
    async def main(run: Run[Any]) -> str:
        if run.attempt == 1:
            run.refer("data.csv")
            run.refer("data.csv")
            raise ValueError("stopped")
        return "gone on"

    return main


def reason(workspace: Path) -> str:
    return look(DiskStore(workspace)).moment.reason


def test_a_run_that_refers_to_what_is_gone_is_paused_with_each_named(workspace: Path) -> None:
    main = begin(workspace, "references: [listed.csv, there.csv]\n")
    (workspace / "there.csv").write_text("")
    assert run(workspace, main).status == "failed", "a new run has nothing to go on with"
    assert run(workspace, main).status == "paused"
    assert reason(workspace) == (
        "reference listed.csv is missing: there is no such file; reference data.csv is missing: there is no such file"
    )
    (workspace / "listed.csv").write_text("")
    (workspace / "data.csv").write_text("")
    outcome = run(workspace, main, wake=True)
    assert (outcome.status, outcome.result) == ("completed", "gone on")


def test_the_agent_and_its_resources_are_left_alone_when_something_is_gone(workspace: Path, calls: list[str]) -> None:
    main = begin(workspace)
    run(workspace, main)

    @agent(resources=[])
    async def other(run: Run[Any]) -> None:
        calls.append("called")

    assert run(workspace, other).status == "paused" and calls == []


def test_what_is_gone_for_good_is_accepted_once(workspace: Path) -> None:
    main = begin(workspace)
    run(workspace, main)
    assert look(DiskStore(workspace)).moment.config["references"] == ["data.csv"]
    outcome = run(workspace, main, accept_drift=True)
    assert outcome.status == "completed"
    assert outcome.report.late[0].text == "reference data.csv is missing: there is no such file"
    assert "references" not in look(DiskStore(workspace)).moment.config


def test_a_reference_that_is_no_text_is_refused(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        run.refer("")

    assert isinstance(run(workspace, main).error, UsageError)
