"""Signed notices: sent for real, to servers of this machine that check them."""

from __future__ import annotations

import base64
import json
import re
import shlex
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from noticing import Watching, completes, doubts, fails, spends

import satchel
from satchel import Run, agent, run, step
from satchel.runtime.live import notices
from satchel.workspace.formats import Webhook
from satchel.workspace.inspect import report
from satchel.workspace.store import open_store

HEAD = "format: 1\nrun_id: test-1\nagent: agent.py:main\n"
SECRET = "whsec_" + base64.b64encode(b"thirty-two bytes of a secret key").decode()
OTHER = "whsec_" + base64.b64encode(b"the key that replaces the first!").decode()
PAGE = Path(__file__).parents[3] / "docs" / "webhooks.md"


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Keeps what it is sent. `answers` are the status codes of the next requests, then 204; 0: no answer."""

    def __init__(self) -> None:
        self.got: list[Request] = []
        self.answers: list[int] = []
        self.location = ""
        self.release = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append(Request(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                answer = outer.answers.pop(0) if outer.answers else 204
                if not answer:
                    outer.release.wait(60)
                    return
                self.send_response(answer)
                if outer.location:
                    self.send_header("Location", outer.location)
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hook?token=sesame"

    def close(self) -> None:
        self.release.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    monkeypatch.setattr(notices, "PAUSES", (0.001, 0.001))
    monkeypatch.setattr(notices, "AT_THE_END", 60.0)  # a busy machine is no server that hangs
    found = Receiver()
    yield found
    found.close()


@pytest.fixture
def verified() -> Any:
    """The function of the documentation."""
    ((source),) = re.findall(r"^```python verify\.py\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(source.splitlines()) <= 12
    names: dict[str, Any] = {}
    exec(source, names)  # noqa: S102
    return names["is_from_satchel"]


def notify(workspace: Path, url: str, secret: str = "${WEBHOOK_SECRET}", more: str = "") -> None:
    places = json.dumps([{"webhook": url, "secret": secret}])
    (workspace / "workspace.yaml").write_text(f"{HEAD}notify: {places}\n{more}")


def told(workspace: Path, main: Any) -> list[str]:
    """What was not sent."""
    watch = Watching()
    run(workspace, main, watch=watch)
    lines = [text for kind, text in watch.lines if kind == "notice"]
    kept = [remark.text for remark in report.last(open_store(str(workspace)))]
    assert all(line in kept for line in lines)
    everything = str(watch.lines) + "".join(path.read_text() for path in workspace.rglob("*.json*"))
    assert SECRET[6:] not in everything and "sesame" not in str(watch.lines)
    return lines


@agent
async def asks(run: Run[Any]) -> None:
    await run.ask("Send it?", choices=["yes", "no"], context={"to": "ada"}, wait_for=0)


@pytest.mark.parametrize("main", [completes, fails, asks, doubts, spends])
def test_a_receiver_can_not_tell_who_has_sent_it(workspace: Path, receiver: Receiver, verified: Any, main: Any) -> None:
    standardwebhooks = pytest.importorskip("standardwebhooks")
    notify(workspace, receiver.url, more="budget: {usd: 1}\n")
    assert told(workspace, main) == []
    assert len(receiver.got) == (2 if main is spends else 1)
    for path, headers, body in receiver.got:
        assert path == "/hook?token=sesame"
        said = standardwebhooks.Webhook(SECRET).verify(body, headers)
        assert verified(headers, body) and not verified(headers, body + b" ")
        assert not verified(headers | {"webhook-timestamp": str(int(time.time()) - 1000)}, body)
        assert not verified(headers | {"webhook-id": "msg_1"}, body)
        assert said == json.loads(body) and said.keys() == {"type", "timestamp", "data"}
        assert said["data"]["run_id"] == "test-1" and said["data"]["workspace"] == str(workspace)
    bodies = {said["type"]: said for said in (json.loads(each.body) for each in receiver.got)}
    said = bodies.pop("run.paused", said)
    data = said["data"]
    if main is completes:
        assert said["type"] == "run.completed" and "Completed." in data["text"]
    if main is fails:
        assert data["error"] == {"kind": "ValueError", "message": "no such file: brief.md"}
    if main is spends:
        assert [*bodies] == ["run.budget"]  # each is sent by itself, so either may come first
        assert "the budget of $1.00 is used up" in data["reason"] and data["by"] == "the budget"
    if main in (fails, spends):
        assert data["command"] == shlex.join(["satchel", "resume", str(workspace)])
    if main is asks:
        (question,) = data["questions"]
        assert question["text"] == "Send it?" and question["choices"] == ["yes", "no"]
        assert question["context"] == {"to": "ada"} and Path(question["file"]).is_file()
        command = shlex.split(question["command"])
        assert command == ["satchel", "answer", str(workspace), question["id"]]
        satchel.open(command[2]).answer("yes", command[3])


def test_each_attempt_is_a_notice_of_its_own(workspace: Path, receiver: Receiver, verified: Any) -> None:
    receiver.answers = [503, 429]
    notify(workspace, receiver.url)
    assert told(workspace, completes) == []
    assert len(receiver.got) == 3
    assert len({each.headers["webhook-id"] for each in receiver.got}) == 1
    assert all(verified(each.headers, each.body) for each in receiver.got)
    run(workspace, completes)
    assert len(receiver.got) == 3


@pytest.mark.parametrize(("answers", "sent"), [([500] * 9, 3), ([410] * 9, 1), ([400] * 9, 1)])
def test_a_receiver_that_refuses_is_asked_for_ever(
    workspace: Path, receiver: Receiver, answers: list[int], sent: int
) -> None:
    code, place = answers[0], f"127.0.0.1:{receiver.server.server_port}"
    receiver.answers = answers
    notify(workspace, receiver.url)
    assert told(workspace, completes) == [f"a notice was not sent to the webhook at {place}: it answered {code}"]
    assert len(receiver.got) == sent


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_leads_to_another_host(workspace: Path, receiver: Receiver, code: int) -> None:
    there = Receiver()
    try:
        receiver.answers, receiver.location = [code], there.url
        notify(workspace, receiver.url)
        (line,) = told(workspace, completes)
        assert line.endswith(f"it answered {code}")
        assert len(receiver.got) == 1 and not there.got
    finally:
        there.close()


def test_a_secret_can_not_be_replaced(
    workspace: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    standardwebhooks = pytest.importorskip("standardwebhooks")
    (tmp_path / "secret").write_text(f"{OTHER} {SECRET}\n")
    notify(workspace, receiver.url, str(tmp_path / "secret"))
    assert told(workspace, completes) == []
    ((_, headers, body),) = receiver.got
    for secret in (SECRET, OTHER):
        assert standardwebhooks.Webhook(secret).verify(body, headers)


@pytest.mark.parametrize(
    ("url", "secret", "value", "said"),
    [
        ("", "${WEBHOOK_SECRET}", None, "the environment has no variable WEBHOOK_SECRET"),
        ("", "/nowhere/secret", SECRET, "the file with its secret can't be read: No such file or directory"),
        ("http://127.0.0.1:1", "${WEBHOOK_SECRET}", SECRET, "Connection refused"),
        ("http://127.0.0.1:1/for Ada", "${WEBHOOK_SECRET}", SECRET, "a space, or characters besides ASCII"),
        ("http://127.0.0.1:1/é", "${WEBHOOK_SECRET}", SECRET, "a space, or characters besides ASCII"),
        ("${NO_SUCH_URL}", "${WEBHOOK_SECRET}", SECRET, "the environment has no variable NO_SUCH_URL"),
    ],
)
def test_a_webhook_that_can_not_be_used_stops_the_run_or_is_not_reported(
    workspace: Path,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    secret: str,
    value: str | None,
    said: str,
) -> None:
    if value is None:
        monkeypatch.delenv("WEBHOOK_SECRET")
    else:
        monkeypatch.setenv("WEBHOOK_SECRET", value)
    notify(workspace, url or receiver.url, secret)
    (line,) = told(workspace, completes)
    assert line.startswith("a notice was not sent to ") and line.endswith(said)
    assert not receiver.got


@pytest.mark.parametrize(
    ("url", "value", "said"),
    [
        *(("http://127.0.0.1:1", value, "secret") for value in ("", "a-password", "whsec_*", "whsec_")),
        *((url, SECRET, "webhook") for url in ("file:///etc/passwd", "http://[", "http://ada:hunter2@127.0.0.1:1")),
    ],
)
def test_a_webhook_that_can_never_work_is_found_at_the_first_notice(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, url: str, value: str, said: str
) -> None:
    monkeypatch.setenv("WEBHOOK_SECRET", value)
    notify(workspace, url)
    with pytest.raises(satchel.errors.InvalidFile, match=rf"workspace.yaml, line 4 \(notify\[0\].{said}\)") as refused:
        run(workspace, completes)
    assert "hunter2" not in str(refused.value) and "a-password" not in str(refused.value)
    assert not (workspace / "journal").exists()
    assert [problem.place for problem in satchel.open(workspace).check().problems] == [f"line 4 (notify[0].{said})"]


def test_only_a_real_stop_shows_whether_notices_arrive(workspace: Path, receiver: Receiver) -> None:
    places = [{"webhook": url, "secret": "${WEBHOOK_SECRET}"} for url in (receiver.url, "http://127.0.0.1:1")]
    (workspace / "workspace.yaml").write_text(f"{HEAD}notify: {json.dumps(places)}\n")
    sent, lost = satchel.open(workspace).try_notices()
    (request,) = receiver.got
    assert json.loads(request.body)["type"] == "run.test" and (sent.problem, lost.problem) == ("", "Connection refused")
    assert (
        sent.place == f"the webhook at 127.0.0.1:{receiver.server.server_port}" and not (workspace / "journal").exists()
    )


def test_a_webhook_needs_the_library_of_other_notices(
    workspace: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    notify(workspace, receiver.url)
    assert told(workspace, completes) == []
    assert len(receiver.got) == 1


def test_a_receiver_that_hangs_holds_the_run_up(
    workspace: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "AT_THE_END", 0.1)
    receiver.answers = [0]
    notify(workspace, receiver.url)
    (line,) = told(workspace, completes)
    assert "it took too long" in line


def test_the_last_failure_is_not_named_if_there_is_no_time_to_try_again(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    pausing, over = threading.Event(), threading.Event()

    def sleep(seconds: float) -> None:
        if threading.current_thread() is sent._under_way[0].thread:  # not that of an earlier test
            pausing.set()
            assert over.wait(60)

    clock = SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=sleep)
    monkeypatch.setattr(notices, "time", clock)
    monkeypatch.setattr(notices, "AT_THE_END", 0.0)
    receiver.answers = [500]
    sent = notices.Notices(lambda: [Webhook(webhook=receiver.url, secret="${WEBHOOK_SECRET}")])
    sent.send(notices.Notice("failed", "title", "text"))
    assert pausing.wait(60)
    sent.wait()
    (line,) = sent.problems()
    over.set()
    assert line == f"a notice was not sent to the webhook at 127.0.0.1:{receiver.server.server_port}: it answered 500"


def test_a_replay_sends_notices(tmp_path: Path, receiver: Receiver) -> None:
    @step
    async def think(how: str) -> str:
        return how

    @agent
    async def main(run: Run[Any]) -> None:
        async def work() -> None:
            if await think(run.settings["how"]) == "ask":
                await run.ask("Sure?", choices=["yes", "no"], wait_for=0)

        await run.scope("work", work)

    workspace = tmp_path / "w"
    workspace.mkdir()
    notify(workspace, receiver.url, more="settings: {how: live}\n")
    assert run(workspace, main).status == "completed"
    assert [json.loads(request.body)["type"] for request in receiver.got] == ["run.completed"]
    for how, end in (("live", "done"), ("ask", "waiting")):
        found = satchel.open(workspace).history.replay("_work", tmp_path / how, settings={"how": how}, agent=main)
        assert found.end == end and not [remark for remark in found.report if "notice" in remark.text]
    assert len(receiver.got) == 1
    satchel.open(tmp_path / "ask").resume(main)
    assert len(receiver.got) == 2, "a person has made it a run"
