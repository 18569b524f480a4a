"""Notices to people who are not looking: sent for real, to a server of this machine."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import warm
from noticing import Watching, completes, doubts, fails, pay, spends
from waits import PATIENCE

from satchel import Run, agent, run
from satchel.runtime.live import limits, notices
from satchel.workspace.inspect import report
from satchel.workspace.store import open_store

HEAD = "format: 1\nrun_id: test-1\nagent: agent.py:main\n"
SECRET = "sesame-opens"


class Receiver:
    """An HTTP server on loopback that keeps what it is sent. `answer` is its status code; 0: it never answers."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.answer = 200
        self.release, self.held = threading.Event(), 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.paths.append(self.path)
                outer.got.append(json.loads(body))
                if not outer.answer:
                    outer.held += not outer.release.wait(PATIENCE)
                    return
                self.send_response(outer.answer)
                self.end_headers()

            def log_message(self, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"json://ann:{SECRET}@127.0.0.1:{self.server.server_port}/hook"

    def close(self) -> None:
        self.release.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(notices, "AT_THE_END", 60.0)  # the first notice imports apprise, on a machine with other work
    found = Receiver()
    yield found
    found.close()


def notify(workspace: Path, *urls: str, more: str = "") -> None:
    (workspace / "workspace.yaml").write_text(f"{HEAD}notify: {json.dumps(urls)}\n{more}")


@pytest.mark.parametrize(
    ("main", "status", "kind", "said"),
    [
        (completes, "completed", "info", "Completed."),
        (fails, "failed", "failure", "ValueError: no such file: brief.md"),
        (doubts, "waiting", "info", "Has it happened?"),
        (spends, "paused", "info", "Paused: cost: the budget of $1.00 is used up ($1.80), by the budget."),
    ],
)
def test_nobody_is_told_how_a_run_has_ended(
    workspace: Path, receiver: Receiver, main: Any, status: str, kind: str, said: str
) -> None:
    notify(workspace, receiver.url, more="budget: {usd: 1}\n")
    watch = Watching()
    assert run(workspace, main, watch=watch).status == status
    assert not [line for line in watch.lines if line[0] == "notice"]
    last = next(each for each in receiver.got if each["title"] == f"test-1: {status}")
    assert last["type"] == kind
    assert said in last["message"]
    if status != "completed":
        assert str(workspace) in last["message"]
    assert len([each for each in receiver.got if "of $1.00 used" not in each["title"]]) == 1
    assert any("$0.90 of $1.00 used" in each["title"] for each in receiver.got) == (main is spends)


def test_a_notice_comes_before_the_stop_is_durable(workspace: Path, receiver: Receiver) -> None:
    seen: list[str] = []
    original = receiver.got.append

    class Looking(list[dict[str, Any]]):
        def append(self, each: dict[str, Any]) -> None:
            seen.append(json.loads((workspace / "state.json").read_text())["status"])
            original(each)

    receiver.got = Looking()
    notify(workspace, receiver.url)
    run(workspace, fails)
    assert seen == ["failed"]


def test_a_run_that_a_window_keeps_from_starting_is_not_told_of(
    workspace: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    notify(workspace, receiver.url, more='windows: [{cron: "* * * * *", duration: 1h, reason: quiet hours}]\n')
    assert run(workspace, completes).status == "paused"
    assert "Paused: quiet hours, by a window, until" in receiver.got[0]["message"]
    assert "satchel resume" in receiver.got[0]["message"]
    run(workspace, completes)
    assert len(receiver.got) == 1


def test_a_server_that_refuses_stops_the_run_or_says_the_password(
    workspace: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    receiver.answer = 500
    notify(workspace, receiver.url)
    watch = Watching()
    with caplog.at_level(logging.DEBUG):
        outcome = run(workspace, completes, watch=watch)
    assert (outcome.status, outcome.result, len(receiver.got)) == ("completed", "done", 1)
    ((kind, text),) = watch.lines
    assert not [record for record in caplog.records if record.name == "apprise"]
    assert kind == "notice"
    assert "127.0.0.1" in text
    assert "error=500" in text
    kept = report.last(open_store(str(workspace)))
    assert any(remark.text == text for remark in kept)
    assert any(remark.text == text for remark in outcome.report.remarks)
    everything = text + caplog.text + "".join(capfd.readouterr()) + json.dumps([each.text for each in kept])
    assert SECRET not in everything


def test_a_server_that_hangs_holds_the_run_up(
    workspace: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "AT_THE_END", 0.3)
    receiver.answer = 0
    notify(workspace, receiver.url, more="budget: {usd: 1}\n")
    watch = Watching()
    outcome = run(workspace, spends, watch=watch)
    assert outcome.status == "paused" and not receiver.held
    assert [kind for kind, _ in watch.lines].count("notice") == 2
    assert "took too long" in watch.lines[-1][1]
    assert SECRET not in str(watch.lines)


def test_a_server_that_hangs_keeps_the_next_address_waiting(
    workspace: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "AT_THE_END", 1.0)
    hanging = Receiver()
    try:
        hanging.answer = 0
        notify(workspace, hanging.url, receiver.url)
        run(workspace, completes)
        assert len(receiver.got) == 1
    finally:
        hanging.close()


def test_the_problem_is_only_told_at_the_end(
    workspace: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TICK", 0.01)
    receiver.answer = 500
    notify(workspace, receiver.url, more="budget: {usd: 1}\n")
    watch = Watching()

    @agent
    async def main(run: Run[Any]) -> None:
        await pay(n=1)
        async with asyncio.timeout(PATIENCE):
            while not any(kind == "notice" for kind, _ in watch.lines):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    assert run(workspace, main, watch=watch).status == "completed"


def test_what_is_no_address_is_quoted(workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    notify(workspace, f"nonsense://ann:{SECRET}@example.org", f"mailto://ann:{SECRET}")
    watch = Watching()
    assert run(workspace, completes, watch=watch).status == "completed"
    assert [kind for kind, _ in watch.lines] == ["notice", "notice"]
    assert "notice 1 of `notify:`" in str(watch.lines)
    assert SECRET not in str(watch.lines) + "".join(capfd.readouterr())


def test_what_the_library_says_is_passed_on_with_the_password() -> None:
    url, place = f"json://ann:{SECRET}%21@example.org/hook", "json://a...n:****@example.org/hook"
    assert notices._why([f"no entry for ann:{SECRET}!", "error=500."], url, place) == "error=500"
    assert notices._why([f"401 for {SECRET}%21"], url, place) == "it was refused"


def test_nobody_answers_at_the_address(workspace: Path, receiver: Receiver) -> None:
    url = receiver.url
    receiver.server.server_close()
    notify(workspace, url)
    watch = Watching()
    assert run(workspace, completes, watch=watch).status == "completed"
    assert [kind for kind, _ in watch.lines] == ["notice"]
    assert SECRET not in str(watch.lines)


def test_an_address_of_the_environment_is_taken_literally(
    workspace: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SATCHEL_TEST_NOTIFY", receiver.url)
    monkeypatch.setenv("SATCHEL_TEST_TOKEN", "abc")
    monkeypatch.delenv("SATCHEL_TEST_NONE", raising=False)
    notify(
        workspace,
        "${SATCHEL_TEST_NOTIFY}",
        "${SATCHEL_TEST_NOTIFY}/${SATCHEL_TEST_TOKEN}",
        "json://${SATCHEL_TEST_NONE}",
    )
    watch = Watching()
    run(workspace, completes, watch=watch)
    assert sorted(receiver.paths) == ["/hook", "/hook/abc"]
    assert [text for _, text in watch.lines] == [
        "a notice was not sent to notice 3 of `notify:`: the environment has no variable SATCHEL_TEST_NONE"
    ]
    assert SECRET not in "".join(path.read_text() for path in workspace.rglob("*") if path.is_file())


def test_a_missing_library_stops_the_run_or_is_said_at_each_notice(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    notify(workspace, "json://localhost", more="budget: {usd: 1}\n")
    watch = Watching()
    assert run(workspace, spends, watch=watch).status == "paused"
    told = [text for kind, text in watch.lines if kind == "notice"]
    assert len(told) == 1
    assert "pip install 'satchel[notify]'" in told[0]


def test_a_run_without_notices_loads_the_library(workspace: Path) -> None:
    (workspace / "workspace.yaml").write_text(HEAD)
    (workspace / "agent.py").write_text("from satchel import agent\n@agent\nasync def main(run): ...\n")
    code = (
        "import sys, satchel; satchel.run(sys.argv[1]); "
        "sys.exit(' '.join({'apprise', 'cronsim', 'requests', 'zoneinfo'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(workspace)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_command_waits_for_ever_for_a_server_that_hangs(workspace: Path, receiver: Receiver) -> None:
    receiver.answer = 0
    notify(workspace, receiver.url)
    (workspace / "agent.py").write_text("from satchel import agent\n@agent\nasync def main(run): ...\n")
    done = warm.run(
        [sys.executable, "-m", "satchel", "run", str(workspace)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0
    assert len(receiver.got) == 1
    assert "a notice was not sent" in done.stderr
    assert SECRET not in done.stderr + done.stdout
