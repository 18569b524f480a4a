"""What changes while a browser looks, through a real server."""

from __future__ import annotations

import asyncio
import http.client
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from api.test_answering import GRANTING
from waits import PATIENCE

import satchel
from satchel import Item, Partial, Run, agent, step
from satchel.runtime.api import Latest, Overview, Shot
from satchel.runtime.faces.web import live
from satchel.runtime.faces.web.server import PageServer, make_app
from satchel.runtime.faces.web.site import Site
from satchel.runtime.live import pending_calls
from satchel.workspace.base import StorageFailed

from .conftest import make


@contextmanager
def serving(site: Site, grace: int | None = 0) -> Iterator[int]:
    """A real server of the page in a thread, and its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(make_app(site), lifespan="off", log_config=None, timeout_graceful_shutdown=grace)
    server = PageServer(config, site)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()
        listener.close()


class Stream:
    """The events of a path, as they come."""

    def __init__(self, port: int, path: str):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self._connection.request("GET", path)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()
        assert self._answer.getheader("content-type", "").startswith("text/event-stream")

    def until(self, text: str) -> str:
        """The data of the events up to the one with `text`."""
        found, deadline = "", time.monotonic() + PATIENCE
        while text not in found:
            assert time.monotonic() < deadline, f"{text!r} does not come: {found}"
            line = self._answer.readline().decode()
            assert line, f"the stream has ended: {found}"
            found += line.removeprefix("data: ") if line.startswith("data: ") else ""
        return found

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_browser_does_not_see_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = make(tmp_path / "letters", GRANTING)
    handle.run()
    site = Site(Overview(tmp_path))
    read: list[str] = []
    real = live.Latest
    monkeypatch.setattr(live, "Latest", lambda handle: read.append(handle.url) or real(handle))
    with serving(site) as port:
        runs, first, second = (Stream(port, path) for path in ("/-/events", *["/run/letters/-/events"] * 2))
        assert 'hx-target="#runs"' in (found := runs.until("</hx-partial>")) and "waiting" in found
        for stream in (first, second):
            begin = stream.until('hx-target="#part-facts"')
            assert 'hx-target="#part-wanted"' in begin and "Grant?" in begin
        handle.answer("approve", by="ada")
        assert handle.run().status == "waiting"
        for stream in (first, second):
            stream.until('id="question-a2"')
        assert read == [str(tmp_path / "letters")], "both browsers share one reader"
        assert "How much?" in runs.until("How much?")
        for stream in (runs, first, second):
            stream.close()


def looking() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("satchel-page-look")]


def test_streams_that_have_ended_leave_their_threads(tmp_path: Path) -> None:
    names = [f"letters-{number}" for number in range(5)]
    for name in names:
        make(tmp_path / name, GRANTING).run()
    with serving(Site(Overview(tmp_path))) as port:
        streams = [Stream(port, f"/run/{name}/-/events") for name in names for _ in range(3)]
        for stream in streams:
            stream.until("Grant?")
        assert len(looking()) == len(names), "one thread reads a run for all who look at it"
        for stream in streams:
            stream.close()
        until(lambda: not looking())


def test_each_browser_that_asks_gets_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STREAMS", 3)
    make(tmp_path / "letters", GRANTING).run()

    def status(path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("GET", path)
        answer = connection.getresponse()
        connection.close()
        return answer.status

    with serving(Site(Overview(tmp_path))) as port:
        streams = [Stream(port, path) for path in ("/-/events", "/run/letters/-/events", "/run/letters/-/events")]
        assert (status("/-/events"), status("/run/letters/-/events")) == (503, 503)
        assert status("/run/letters") == 200, "the page itself can be read, and its run stopped"
        streams[1].until("Grant?")
        streams.pop().close()
        until(lambda: status("/-/events") == 200)
        for stream in streams:
            stream.close()


def test_a_browser_does_not_see_which_step_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_calls, "LONG", 0.02)
    handle = make(tmp_path / "letters", GRANTING)
    go = threading.Event()

    @step
    def summarise(path: str) -> str:
        assert go.wait(PATIENCE)
        return "short"

    @agent
    async def main(run: Run) -> None:
        await run.scope("read", summarise, "<a>.txt")

    thread = threading.Thread(target=lambda: handle.run(main))
    with serving(Site(Overview(tmp_path))) as port:
        stream = Stream(port, "/run/letters/-/events")
        thread.start()
        try:
            shown = stream.until("began <time")
            assert "Running now" in shown
            assert '<code class="call active">summarise(&#34;path&#34;:&#34;&lt;a&gt;.txt&#34;)</code>' in shown
        finally:
            go.set()
            thread.join(PATIENCE)
        assert "began <time" not in stream.until("completed").rpartition("part-head")[2]
        stream.close()


def test_a_browser_does_not_see_how_fast_a_run_is(tmp_path: Path) -> None:
    handle = make(tmp_path / "letters", GRANTING)
    go = threading.Event()

    @step
    def write(to: str) -> None:
        assert to == "Ada" or go.wait(PATIENCE)

    async def work(run: Run, item: Item) -> None:
        await write(item.text)

    @agent
    async def main(run: Run) -> None:
        await run.plan(None, ["Ada", "Grace"])
        await run.todo.each(work)

    thread = threading.Thread(target=lambda: handle.run(main))
    with serving(Site(Overview(tmp_path))) as port:
        stream = Stream(port, "/run/letters/-/events")
        thread.start()
        try:
            shown = stream.until("forecast")
            assert re.search(r"forecast.>[0-9.,]+ items? an? \w+, about .* left<", shown)
        finally:
            go.set()
            thread.join(PATIENCE)
        # The log may say first that it has completed.
        assert "forecast" not in stream.until(">completed</span>").rpartition("part-head")[2]
        stream.close()


def test_a_run_is_read_although_no_browser_looks(tmp_path: Path) -> None:
    handle = make(tmp_path / "letters", GRANTING)
    handle.run()
    site = Site(Overview(tmp_path))

    async def look() -> None:
        watching = live.Watching(site)
        first, second = (watching.shots(site.find("letters")) for _ in range(2))
        assert isinstance(await anext(first), Shot) and isinstance(await anext(second), Shot)
        (task,) = (each.task for each in watching._runs.values())
        await first.aclose()
        assert not task.cancelling()
        await second.aclose()
        assert task.cancelling() and not watching._runs

    asyncio.run(look())


def test_a_run_that_is_gone_ends_the_stream(tmp_path: Path) -> None:
    import shutil

    handle = make(tmp_path / "letters", GRANTING)
    handle.run()
    with serving(Site(Overview(tmp_path))) as port:
        stream = Stream(port, "/run/letters/-/events")
        stream.until("Grant?")
        shutil.rmtree(tmp_path / "letters")
        assert 'role="alert"' in stream.until('role="alert"')
        stream.close()


def test_the_stop_button_goes_with_what_can_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = make(tmp_path / "letters", GRANTING)
    handle.run()
    monkeypatch.setattr(live, "_AGAIN", 0.01)
    (tmp_path / "letters/inbox").symlink_to(tmp_path)
    with serving(Site(Overview(tmp_path))) as port:
        stream = Stream(port, "/run/letters/-/events")
        found = stream.until("</hx-partial>")
        assert "points outside" in found and 'action="/run/letters/-/act/stop"' in found and "form_token" in found
        (tmp_path / "letters/inbox").unlink()
        assert "Grant?" in stream.until('hx-target="#part-facts"'), "the page is whole again"
        stream.close()


def test_runs_whose_storage_hangs_keep_the_others_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk of a network may answer after minutes. Each run that a browser looks at takes a thread meanwhile."""
    runs = [make(tmp_path / f"run-{number}", GRANTING) for number in range(40)]
    gate = threading.Event()
    real = Latest.look

    def look(latest: Latest) -> Shot:
        assert latest._store.url.endswith("/run-0") or gate.wait(PATIENCE)
        return real(latest)

    monkeypatch.setattr(Latest, "look", look)
    with serving(Site(Overview(tmp_path))) as port:
        streams = [Stream(port, f"/run/{Path(each.url).name}/-/events") for each in reversed(runs)]
        try:
            assert "never started" in streams[-1].until('hx-target="#part-facts"')
        finally:
            gate.set()
        assert "never started" in streams[0].until('hx-target="#part-facts"')
        for stream in streams:
            stream.close()


def test_an_unforeseen_error_ends_a_stream_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = make(tmp_path / "letters", GRANTING)
    handle.run()
    monkeypatch.setattr(live, "_AGAIN", 0.01)
    with serving(Site(Overview(tmp_path))) as port:
        stream = Stream(port, "/run/letters/-/events")
        stream.until("Grant?")

        def look(latest: Latest) -> Shot:
            raise RecursionError("too deep")

        with monkeypatch.context() as patch:
            patch.setattr(Latest, "look", look)
            stream.until("too deep")
        assert "Grant?" in stream.until('hx-target="#part-facts"'), "the page is whole again"
        handle.answer("approve")
        handle.run()
        stream.until('id="question-a2"')
        stream.close()


def test_open_streams_delay_the_end_or_leave_a_traceback(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path / "letters", GRANTING).run()
    with serving(Site(Overview(tmp_path)), grace=None) as port:  # it waits for all requests
        streams = [Stream(port, path) for path in ("/-/events", "/run/letters/-/events")]
        for stream in streams:
            stream.until("</hx-partial>")
    for stream in streams:
        stream.close()
    assert not [each for each in caplog.records if each.levelno > logging.INFO]


def test_a_line_break_of_an_old_kind_cuts_an_event_in_two() -> None:
    event = live._event([("now", "a\rdata: b\r\nc\n")])
    assert all(not line or line.startswith("data: ") for line in re.split("\r\n|\r|\n", event))


def test_streamed_text_comes_late(tmp_path: Path) -> None:
    """Each look has what is in the file by then, and one that finds nothing new is the one before."""
    handle = make(tmp_path / "letters")
    gate = threading.Event()

    @step
    async def think(out: Partial) -> str:
        await out.write("the first words, ")
        await asyncio.to_thread(gate.wait, PATIENCE)
        await out.write("the last ones")
        return out.text

    @agent
    async def main(run: Run) -> None:
        await think()

    thread = threading.Thread(target=handle.run, args=(main,))
    thread.start()
    latest = Latest(satchel.open(tmp_path / "letters"))
    texts: list[str] = []

    def has_text() -> bool:
        texts[:] = [each.text for each in latest.look().status.streams]
        return texts == ["the first words, "]

    until(has_text)
    assert latest.look() is latest.look()
    gate.set()
    thread.join(PATIENCE)
    shot = latest.look()
    assert shot.status.state == "completed" and not shot.status.streams
    assert [row.line.seq for row in shot.rows] == [*range(1, shot.rows[-1].line.seq + 1)]


@pytest.mark.parametrize("part", ["refresh", "read"])
def test_a_storage_that_fails_takes_the_page_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """And what was typed into its forms. `status` itself tells of a storage that fails while it reads."""
    handle = make(tmp_path / "letters", GRANTING)
    handle.run()
    latest = Latest(handle)
    before = latest.look()

    def fails(*_: object, **more: object) -> None:
        raise StorageFailed("can't be read", why="Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(handle.store, part, fails)
        failed = latest.look(whole=True)
        assert failed.status is before.status and "Input/output error" in str(failed.problem)
    after = latest.look()
    assert after.problem is None and after.status.state == "waiting" and after.rows == before.rows


def test_one_file_that_can_not_be_read_holds_the_page_at_an_old_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = make(tmp_path / "letters", GRANTING)
    handle.run()
    latest = Latest(handle)
    before = latest.look()
    handle.cancel()
    handle.run()
    read = handle.store.read

    def fails(path: str, **more: int) -> object:
        if path == "state.json":
            raise StorageFailed("can't be read", path=path, why="Permission denied")
        return read(path, **more)

    monkeypatch.setattr(handle.store, "read", fails)
    after = latest.look(whole=True)
    assert before.status.state == "waiting" and after.status.state == "cancelled" and len(after.rows) > len(before.rows)


def test_a_browser_does_not_see_what_is_said(tmp_path: Path) -> None:
    """Of a run that had said nothing when the page was opened, and of a search nothing at all."""
    handle = make(tmp_path / "letters")
    gates = [threading.Event(), threading.Event()]

    @agent
    async def main(run: Run) -> None:
        for number, gate in enumerate(gates):
            await asyncio.to_thread(gate.wait, PATIENCE)
            await run.scope(f"s{number}", say, run, number)

    async def say(run: Run, number: int) -> None:
        run.messages.add("user", f"<b>message</b> {number}")

    thread = threading.Thread(target=handle.run, args=(main,))
    thread.start()
    try:
        with serving(Site(Overview(tmp_path))) as port:
            stream = Stream(port, "/run/letters/-/events/messages")
            assert 'hx-target="#part-messages"' in stream.until("has recorded no messages")
            for number, gate in enumerate(gates):
                gate.set()
                assert "<b>message" not in stream.until(f"message&lt;/b&gt; {number}")
            stream.close()
    finally:
        for gate in gates:
            gate.set()
        thread.join(PATIENCE)
    assert not thread.is_alive()
