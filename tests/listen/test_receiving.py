"""`POST /inbox/RUN`: what is accepted, what is refused, and what a sender that tries again gets. Over real sockets."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import quote

import pytest
import warm
from click.testing import CliRunner
from servers import Server

import satchel
from satchel.runtime.cli.group import group
from satchel.workspace.base.errors import StorageFailed, UsageError
from satchel.workspace.inbound import inbox

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from waits import PATIENCE

from satchel.runtime.faces.http import access, listening
from satchel.runtime.faces.http import listen as requests

TOKEN = "a-token-for-tests-9c2f"
TEXT = {"content-type": "text/plain"}
JSON = {"content-type": "application/json"}
TAKING = """
from satchel import agent

async def work(run, task):
    run.state.setdefault("seen", []).append(task.text or task.data)

@agent
async def main(run):
    await run.inbox.each(work)
"""


class Reply(NamedTuple):
    status: int
    said: dict[str, Any]
    headers: dict[str, str]


class Client:
    def __init__(self, url: str):
        self.url = url

    def connection(self) -> http.client.HTTPConnection:
        if not self.url.startswith("unix:"):
            return http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=PATIENCE)
        found = http.client.HTTPConnection("localhost", timeout=PATIENCE)
        found.sock = socket.socket(socket.AF_UNIX)
        found.sock.connect(self.url.removeprefix("unix:"))
        return found

    def post(self, run: str, body: Any = "a task", headers: Any = TEXT, *, token: str = TOKEN, **more: str) -> Reply:
        data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body)
        every = {"authorization": f"Bearer {token}"} if token else {}
        every |= headers | {name.replace("_", "-"): value for name, value in more.items()}
        return self.ask("POST", f"/inbox/{run}", data, every)

    def ask(self, method: str, path: str, body: Any = None, headers: Any = None) -> Reply:
        connection = self.connection()
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            said = answer.read()
            return Reply(answer.status, json.loads(said), {k.lower(): v for k, v in answer.getheaders()})
        finally:
            connection.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make(tmp_path / "runs" / "letters")
    return tmp_path / "runs"


def make(folder: Path, run_id: str = "letters-1") -> Path:
    folder.mkdir(parents=True)
    (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {run_id}\nagent: agent.py:main\n")
    (folder / "agent.py").write_text(TAKING)
    return folder


@pytest.fixture
def client(root: Path) -> Iterator[Client]:
    with listening(str(root), "0", token=TOKEN) as url:
        yield Client(url)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Path]]:
    """For requests that change nothing: a root with one good run, and with places that are none."""
    root = tmp_path_factory.mktemp("several") / "runs"
    for place in ("letters", "letters/inner", ".hidden", "../outside", "damaged"):
        make(root / place)
    (root / "link").symlink_to(root.parent / "outside")
    (root / "damaged" / "workspace.yaml").write_text("format: 1\nagent: agent.py:main\n")
    with listening(str(root), "0", token=TOKEN) as url:
        yield Client(url), root


def in_inbox(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in (folder / "inbox").glob("*.*"))


def test_a_task_is_not_there_when_it_is_accepted(client: Client, root: Path) -> None:
    reply = client.post("letters", "Write to Ada")
    assert reply.status == 202
    assert (root / "letters" / reply.said["file"]).read_text() == "Write to Ada\n"
    assert reply.said["run"] == "letters"
    data = {"to": "Grace", "copies": [1, None, "no"]}
    assert client.post("letters", data, {"content-type": "application/cloudevents+json; charset=utf-8"}).status == 202
    assert client.post("letters", {"kind": "message", "text": "hurry"}, JSON).status == 202
    assert client.ask("GET", "/healthz") == (200, {"status": "ok"}, mock.ANY)
    assert satchel.open(root / "letters").run().status == "completed"
    assert json.loads((root / "letters/state.json").read_text())["data"]["seen"] == ["Write to Ada\n", data]


@pytest.mark.parametrize("name", ["2026 öl/deep one", "a%b", "q?x", 'quo"te', "plus+and&", "a:b", "*", "ends.", "\\"])
def test_a_run_of_an_odd_name_is_not_found(client: Client, root: Path, name: str) -> None:
    """Whatever `satchel ls` shows; some of these names can't be on other systems."""
    make(root / name, "odd-1")
    reply = client.post(quote(name))
    assert (reply.status, reply.said.get("run")) == (202, name)
    assert in_inbox(root / name) == ["a task\n"]


def test_a_sender_that_tries_again_makes_a_second_task(client: Client, root: Path) -> None:
    first = client.post("letters", "Write to Ada", idempotency_key="order 17")
    assert first.status == 202
    assert client.post("letters", "Write to Ada", idempotency_key="order 17").said == first.said
    other = client.post("letters", "Write to Bob", idempotency_key="order 17")
    assert (other.status, other.said["title"]) == (422, "the Idempotency-Key was used for another task")
    assert satchel.open(root / "letters").run().status == "completed"
    assert client.post("letters", "Write to Ada", idempotency_key="order 17").said == first.said
    assert client.post("letters", "Write to Bob", idempotency_key="order 17").status == 422
    assert in_inbox(root / "letters") == []
    assert client.post("letters", "Write to Ada", idempotency_key="order 18").status == 202
    assert in_inbox(root / "letters") == ["Write to Ada\n"]
    assert client.post("letters", "a: 1", idempotency_key="order 19").status == 202
    assert client.post("letters", {"a": 1}, JSON, idempotency_key="order 19").status == 422, "text is no data"


def test_two_requests_with_one_key_at_once_make_two_tasks(client: Client, root: Path) -> None:
    """The first is held back before it writes: the second must wait for it."""
    arrived, may_go_on = threading.Semaphore(0), threading.Event()
    real = inbox.send

    def slowly(*args: Any, **more: Any) -> str:
        arrived.release()
        assert may_go_on.wait(PATIENCE)
        return real(*args, **more)

    with mock.patch.object(inbox, "send", slowly), ThreadPoolExecutor(4) as threads:
        same = [threads.submit(client.post, "letters", "Write to Ada", idempotency_key="a") for _ in range(3)]
        other = threads.submit(client.post, "letters", "Write to Ada", idempotency_key="b")
        assert arrived.acquire(timeout=PATIENCE) and arrived.acquire(timeout=PATIENCE)  # one of each key
        may_go_on.set()
        replies = [each.result(PATIENCE) for each in same]
        assert other.result(PATIENCE).status == 202
    assert len({each.said["file"] for each in replies}) == 1
    assert len(in_inbox(root / "letters")) == 2


@pytest.mark.parametrize(
    ("run", "body", "headers", "status", "said"),
    [
        ("letters", "", TEXT, 400, "empty"),
        ("letters", " \n", TEXT, 400, "empty"),
        ("letters", b"\xff", TEXT, 400, "UTF-8"),
        ("letters", b"a\0b", TEXT, 400, "NUL"),
        ("letters", "{", JSON, 400, "not JSON"),
        ("letters", '"  "', JSON, 400, "empty"),
        ("letters", "[" * 100_000, JSON, 400, "not JSON"),
        ("letters", "[" * 900 + "]" * 900, JSON, 400, "nested levels"),
        ("letters", {"kind": "letter"}, JSON, 400, "task or message"),
        ("letters", {"a": "x" * 300_000}, JSON, 400, "256 KiB"),
        ("letters", f"[{'[1],' * 50_000}1]", JSON, 400, "256 KiB as YAML"),
        ("letters", "x", {"content-type": "application/x-www-form-urlencoded"}, 415, "text/plain"),
        ("letters", "x", {}, 415, "application/json"),
        ("letters", "x" * ((1 << 20) + 1), TEXT, 413, "1 MiB"),
        ("letters", "x", TEXT | {"idempotency-key": "x" * 256}, 400, "255 characters"),
        ("", "x", TEXT, 404, "satchel ls"),
        ("postcards", "x", TEXT, 404, "satchel ls"),
        ("letters/..", "x", TEXT, 404, ""),
        ("..%2Fletters", "x", TEXT, 404, ""),
        ("%2e%2e/outside", "x", TEXT, 404, ""),
        ("/etc", "x", TEXT, 404, ""),
        (".hidden", "x", TEXT, 404, ""),
        ("link", "x", TEXT, 404, ""),
        ("letters/inner", "x", TEXT, 404, ""),
        ("a%00b", "x", TEXT, 404, ""),
        ("damaged", "x", TEXT, 500, "run_id"),
    ],
)
def test_a_request_that_is_wrong_is_accepted(
    several: tuple[Client, Path], run: str, body: Any, headers: dict[str, str], status: int, said: str
) -> None:
    client, root = several
    reply = client.post(run, body, headers)
    assert reply.status == status and said in json.dumps(reply.said), reply
    assert reply.headers["content-type"] == "application/problem+json" and reply.said["status"] == status
    assert not [path for path in root.parent.rglob("inbox") if [*path.iterdir()]]


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ([("host", "localhost")], '{"to": "Ada"}', 202),
        ([("host", "LOCALHOST:80")], '{"to": "Ada"}', 202),
        ([("host", "192.168.0.7:8080")], '{"to": "Ada"}', 202),
        ([("host", "hooks.example.org")], '{"to": "Ada"}', 202),
        ([("host", "evil.example")], '{"to": "Ada"}', 421),
        ([("host", "localhost"), ("host", "evil.example")], '{"to": "Ada"}', 400),  # h11 knows that
        ([], '{"to": "Ada"}', 400),
        ([("host", "localhost"), ("authorization", "Bearer wrong-token-9c2f")], "{}", 401),
        ([("host", "localhost"), ("authorization", f"Bearer {TOKEN}")], "{}", 401),
        ([("host", "localhost"), ("idempotency-key", "a"), ("idempotency-key", "b")], "{}", 400),
        ([("host", "localhost"), ("content-type", "text/plain")], "{}", 400),
        ([("host", "localhost")], '{"to": "Ada", "to": "Grace"}', 400),
        ([("host", "localhost")], '{"a": {"b": [{"c": 1, "c": 1}]}}', 400),
        ([("host", "localhost")], '{"a": NaN}', 400),
        ([("host", "localhost")], '{"a": 1e999}', 400),
        ([("host", "localhost")], '{"a": "\\ud83d"}', 400),
        ([("host", "localhost")], "[" * 1000 + "]" * 1000, 400),
    ],
)
@pytest.mark.parametrize("is_last", [False, True])
def test_a_request_that_two_readers_understand_differently_is_accepted(
    root: Path, headers: list[tuple[str, str]], body: str, status: int, is_last: bool
) -> None:
    ours = [("authorization", f"Bearer {TOKEN}"), ("content-type", "application/json")]
    with listening(str(root), "0", token=TOKEN, names=["Hooks.example.org"]) as url:
        connection = Client(url).connection()
        connection.putrequest("POST", "/inbox/letters", skip_host=True)
        for name, value in [*ours, *headers] if is_last else [*headers, *ours]:
            connection.putheader(name, value)
        connection.putheader("content-length", str(len(body)))
        connection.endheaders(body.encode())
        answer, said = connection.getresponse(), ""
        with suppress(ConnectionResetError):  # the server closes before it has read the body of what h11 refuses
            said = answer.read().decode()
        connection.close()
    assert answer.status == status, said
    assert len(in_inbox(root / "letters")) == (status == 202)
    assert "Ada" not in body or "Grace" not in body or "line 1" in said


def test_tokens_can_be_guessed_as_fast_as_they_are_sent(
    client: Client, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(access, "PAUSE", 1000.0)  # so that no time passes between two
    monkeypatch.setattr(access, "sleep", sleep)
    for _ in range(50):
        assert client.post("letters", token="old-token-of-a-sender").status == 401
    assert client.post("letters", token="").status == 401 and not waited, "who tries nothing new guesses nothing"
    for number in range(access.FREE + access.WAITING - 1):
        assert client.post("letters", token=f"wrong-{number}").status == 401
    assert len(waited) == access.WAITING and waited == sorted(waited) and waited[-1] > 9000
    for token in ("wrong", TOKEN):
        reply = client.post("letters", token=token)
        assert reply.status == 429 and reply.headers["retry-after"] == "10", "another try would be free"
    monkeypatch.setattr(access, "PAUSE", 10_000.0)  # as if time had passed
    assert client.post("letters").status == 202


def test_a_sender_makes_a_time_of_a_schedule(client: Client, root: Path) -> None:
    """It would count as taken, and the true one would never come."""
    for extra in ({}, {"more": 1}):
        forged = {"kind": "schedule", "schedule": "daily", "due": "2026-11-22T06:00:00Z", **extra}
        reply = client.post("letters", forged, JSON, idempotency_key="k")
        assert (reply.status, reply.said["title"]) == (422, "a time of a schedule can't be sent")
        assert "workspace.yaml" in reply.said["detail"]
    assert client.post("letters", {"kind": "task", "schedule": "daily"}, JSON, idempotency_key="k").status == 202
    assert len(in_inbox(root / "letters")) == 1


def test_a_large_body_is_read_before_it_is_refused(client: Client) -> None:
    """Its length says enough; without a length, reading ends at the limit."""
    for header in ("content-length: 999999999999", "transfer-encoding: chunked"):
        connection = client.connection()
        connection.connect()
        head = f"POST /inbox/letters HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n{header}\r\n\r\n"
        connection.sock.sendall(head.encode())
        if "chunked" in header:
            connection.sock.sendall(b"100001\r\n" + b"x" * 0x100001)
        assert connection.sock.recv(100).startswith(b"HTTP/1.1 413")
        connection.close()


def test_a_body_that_never_comes_is_waited_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "PATIENCE", 0.05)
    connection = client.connection()
    connection.connect()
    head = (
        f"POST /inbox/letters HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 9\r\n\r\n"
    )
    connection.sock.sendall(head.encode())
    assert connection.sock.recv(100).startswith(b"HTTP/1.1 408")
    connection.close()


def test_a_request_without_the_token_is_accepted(client: Client, root: Path) -> None:
    for token in ("", "wrong", TOKEN[:-1], f"{TOKEN}x"):
        reply = client.post("letters", token=token)
        assert reply.status == 401 and reply.headers["www-authenticate"] == "Bearer"
        assert client.post("postcards", token=token).status == 401, "it does not tell which runs there are"
    assert client.post("letters", headers=TEXT | {"authorization": f"Basic {TOKEN}"}, token="").status == 401
    assert not (root / "letters" / "inbox").exists()


@pytest.mark.parametrize(("path", "method", "status"), [("/", "GET", 404), ("/inbox/letters", "GET", 405)])
def test_something_else_is_served(client: Client, path: str, method: str, status: int) -> None:
    connection = client.connection()
    connection.request(method, path)
    reply = connection.getresponse()
    assert reply.status == status and json.loads(reply.read())["status"] == status
    connection.close()


def test_a_run_that_takes_no_tasks_gets_one(client: Client, root: Path, tmp_path: Path) -> None:
    make(root / "over", "over-1")
    satchel.open(root / "over").cancel()
    reply = client.post("over")
    assert reply.status == 409 and "was cancelled" in reply.said["detail"]
    make(root / "away", "away-1")
    satchel.open(root / "away").move(tmp_path / "there")
    reply = client.post("away")
    assert reply.status == 409 and str(tmp_path / "there") in reply.said["detail"]


def test_a_full_disk_counts_as_accepted(client: Client, root: Path) -> None:
    full = StorageFailed("can't write", path="inbox/x.md", why="No space left on device")
    with mock.patch.object(inbox, "send", side_effect=full):
        reply = client.post("letters", idempotency_key="a")
    assert (reply.status, reply.headers["retry-after"]) == (503, "30")
    assert "No space left" in reply.said["detail"]
    assert client.post("letters", idempotency_key="a").status == 202
    assert len(in_inbox(root / "letters")) == 1


def test_a_web_page_can_send_tasks_where_no_token_is_needed(root: Path) -> None:
    with listening(str(root), "127.0.0.1:0") as url:
        client = Client(url)
        assert client.post("letters", token="").status == 202
        assert client.post("letters", token="", origin="https://example.org").status == 403
    assert len(in_inbox(root / "letters")) == 1


def test_a_root_that_is_a_run_is_not_found(root: Path) -> None:
    with listening(str(root / "letters"), "0") as url:
        assert Client(url).post("letters", token="").status == 202
        assert Client(url).post("letters/inner", token="").status == 404


def test_a_socket_that_a_kill_has_left_is_in_the_way(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with listening(str(root), f"unix:{path}") as url:
        assert Client(url).post("letters", token="").status == 202
        with pytest.raises(UsageError, match="in use"), listening(str(root), f"unix:{path}"):
            raise AssertionError
        assert Client(url).post("letters", token="").status == 202
    assert not path.exists()


@pytest.mark.parametrize(
    ("written", "token", "said"),
    [
        ("somewhere", TOKEN, "HOST:PORT"),
        ("70000", TOKEN, "HOST:PORT"),
        ("unix:", TOKEN, "unix:PATH"),
        ("0.0.0.0:0", None, "addresses of this machine"),
        ("0", "", "needs a token"),
        ("0", " \n", "needs a token"),
        ("0", "short", "fewer than 16"),
        ("192.0.2.1:1", TOKEN, "can't listen on http://192.0.2.1:1"),
        ("a..b:0", TOKEN, "can't listen on http://a..b:0"),
    ],
)
def test_it_listens_where_or_how_it_should_not(root: Path, written: str, token: str | None, said: str) -> None:
    with pytest.raises(UsageError, match=said), listening(str(root), written, token=token):
        raise AssertionError


def test_a_token_that_replaces_another_locks_senders_out(root: Path) -> None:
    with listening(str(root), "127.0.0.1:0", token=f"the-new-token-of-today\n{TOKEN}\n") as url:
        for token in (TOKEN, "the-new-token-of-today"):
            assert Client(url).post("letters", token=token).status == 202


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--no-token"], "--listen"),
        (["--listen", "0", "--once"], "--once"),
        (["--listen", "0", "--token-file", "empty"], "there is no token"),
        (["--listen", "0", "--token-file", "junk"], "other characters than ASCII"),
        (["--listen", "0"], "needs a token"),
    ],
)
def test_a_command_that_makes_no_sense_listens(root: Path, words: list[str], said: str) -> None:
    (root / "empty").touch()
    (root / "junk").write_bytes(bytes(range(256)))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SATCHEL_LISTEN_TOKEN", raising=False)
        patch.chdir(root)
        result = CliRunner().invoke(group, ["serve", str(root), *words])
    assert result.exit_code == 2 and said in result.stderr


def test_a_listener_that_fails_leaves_serve_alone(root: Path) -> None:
    ended = threading.Event()
    import signal

    before = signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        with (
            mock.patch("uvicorn.Server.run", side_effect=OSError("no more memory")),
            pytest.raises(satchel.SatchelError, match="the listener failed: OSError"),
            listening(str(root), "0"),
        ):
            assert ended.wait(PATIENCE)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_serve_starts_no_run_for_a_task_that_has_arrived(root: Path) -> None:
    """The whole command: a new task of a completed run, and SIGTERM while a connection is open. The run must not have
    the token."""
    reading = TAKING.replace("task.text or task.data", "[task.text, os.environ.get('SATCHEL_LISTEN_TOKEN')]")
    (root / "letters/agent.py").write_text(f"import os\n{reading}")
    assert satchel.open(root / "letters").run().status == "completed"
    command = [sys.executable, "-m", "satchel", "serve", "--json", "--listen", "0", str(root)]
    environment = {**os.environ, "SATCHEL_LISTEN_TOKEN": TOKEN}
    with warm.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as served:
        try:
            events = map(json.loads, served.stdout)
            listening = next(events)
            assert (listening["event"], listening["folder"]) == ("listening", str(root))
            client = Client(listening["text"])
            left_open = client.connection()
            left_open.request("GET", "/healthz")
            assert left_open.getresponse().read()
            assert client.post("letters", "Write to Ada").status == 202
            assert next(each for each in events if each["event"] == "completed")["folder"] == str(root / "letters")
            served.terminate()
            assert served.wait(60) == 0
            left_open.close()
        finally:
            served.kill()
    assert json.loads((root / "letters/state.json").read_text())["data"]["seen"] == [["Write to Ada\n", None]]


def test_a_run_in_a_bucket_gets_no_tasks_or_gets_them_twice(
    seaweedfs: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    place = seaweedfs.place()
    folder = make(tmp_path / "here")
    satchel.open(folder).copy(f"{place}/letters")
    with listening(place, "0") as url:
        client = Client(url)
        first = client.post("letters", "Write to Ada", token="", idempotency_key="a")
        assert first.status == 202, first
        assert client.post("letters", "Write to Ada", token="", idempotency_key="a").said == first.said
        assert client.post("letters", "Write to Bob", token="", idempotency_key="a").status == 422
        assert client.post("postcards", token="").status == 404
        assert client.post("letters/inbox", token="").status == 404
        assert satchel.open(f"{place}/letters").run(adopt=True).status == "completed"
        assert client.post("letters", "Write to Ada", token="", idempotency_key="a").said == first.said
    assert os.path.basename(first.said["file"]) in _names(seaweedfs, place)


def _names(server: Server, place: str) -> list[str]:
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    found = server.client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/letters/inbox/done/")
    return [each["Key"].rpartition("/")[2] for each in found["Contents"]]
