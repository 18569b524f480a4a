"""What is known of a run, without a screen: offline storage, and what ends a stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from cli.conftest import Make
from waits import PATIENCE

import satchel
from satchel.runtime.api import Handle, Latest, LogRow
from satchel.runtime.faces.watch import feed as feeds
from satchel.runtime.faces.watch.feed import Feed
from satchel.runtime.status import events
from satchel.workspace import journal
from satchel.workspace.base import StorageFailed
from satchel.workspace.journal import Line

from .conftest import ASKING, play


async def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_a_storage_that_goes_offline_is_told_and_comes_back(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "_AGAIN", (0.02,))
    monkeypatch.setattr(feeds, "_LOOK", 0.02)
    monkeypatch.setattr(feeds, "_SOON", 0.02)
    handle = satchel.open(make(ASKING))
    handle.run()
    is_offline = True

    def opened() -> Handle:
        if is_offline:
            raise StorageFailed("does not answer")
        return satchel.open(handle.url)

    def status() -> None:
        if is_offline:
            raise StorageFailed("does not answer")

    async def test() -> None:
        nonlocal is_offline
        feed = Feed(opened, lambda: None)
        tasks = [asyncio.create_task(feed.look()), asyncio.create_task(feed.follow())]
        await until(lambda: feed.problem and feed.status)
        assert feed.status and "does not answer" in str(feed.status.problem) and feed.status.state == "damaged"
        is_offline = False
        await until(lambda: feed.seen and feed.status and not feed.status.problem and not feed.problem)
        assert feed.status.state == "waiting"
        is_offline = True
        with monkeypatch.context() as patched:
            patched.setattr(Feed, "_status", staticmethod(lambda handle: status()))
            await until(lambda: feed.status and feed.status.problem)
            assert feed.status.state == "waiting" and feed.status.questions  # what was known stays in sight
        is_offline = False
        await until(lambda: feed.status and not feed.status.problem)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    play(test)


def test_an_error_that_no_reader_has_foreseen_is_told_and_ends_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = satchel.open(make(ASKING))

    def status(latest: Latest, is_whole: bool) -> None:
        raise RecursionError("too deep")

    async def test() -> None:
        feed = Feed(lambda: handle, lambda: None)
        monkeypatch.setattr(Feed, "_status", staticmethod(status))
        task = asyncio.create_task(feed.look())
        await until(lambda: feed.status)
        assert feed.status and "too deep" in str(feed.status.problem)
        monkeypatch.undo()
        await until(lambda: feed.status and feed.status.state == "new")
        task.cancel()
        await asyncio.wait([task])

    play(test)


def test_the_status_of_a_run_that_rests_is_read_again_and_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open screen costs next to nothing, however long the plan is."""
    handle = satchel.open(make(ASKING))
    read: list[str] = []
    looks: list[bool] = []
    status, look = Handle.status, Latest.look
    monkeypatch.setattr(Handle, "status", lambda handle: (read.append(""), status(handle))[1])
    monkeypatch.setattr(Latest, "look", lambda latest, whole: (looks.append(whole), look(latest, whole=whole))[1])
    monkeypatch.setattr(feeds, "_LOOK", 0.0)
    monkeypatch.setattr(feeds, "_SOON", 0.0)

    async def test() -> None:
        feed = Feed(lambda: handle, lambda: None)
        task = asyncio.create_task(feed.look())
        await until(lambda: len(looks) > 5)
        assert looks[0] and not any(looks[1:]) and len(read) == 1 and feed.status
        feed.look_now()
        await until(lambda: len(read) == 2)
        handle.send("a task")
        await until(lambda: feed.status and feed.status.waiting == 1)
        task.cancel()
        await asyncio.wait([task])

    play(test)


def token(text: str, offset: int, at: str = "2026-01-01T00:00:05Z") -> events.Tokens:
    return events.Tokens(seq=1, at=at, scope="1", no=1, step="think", text=text, offset=offset)


def test_a_streamed_answer_grows_begins_again_and_ends() -> None:
    feed = Feed(lambda: satchel.open("."), lambda: None)

    def texts() -> list[str]:
        return [stream.text for stream in feed.streams.values()]

    feed._add(token("one ", 0))
    feed._add(token("two", 4))
    assert texts() == ["one two"]
    feed._add(token("other", 0))
    assert texts() == ["other"]
    feed._add(token("x" * 100_000, 5))
    assert texts() == ["x" * 65536]
    feed._add(events.RunStarted(seq=2, at="2026-01-01T00:00:01Z", run_id="r", host="h", pid=1))  # read after the text
    assert texts() == ["x" * 65536]
    feed._add(events.StepCompleted(seq=3, at="2026-01-01T00:00:06Z", scope="1", no=2, step="think"))
    assert len(texts()) == 1
    feed._add(events.StepCompleted(seq=4, at="2026-01-01T00:00:07Z", scope="1", no=1, step="think"))
    assert texts() == []


def test_an_item_of_a_replaced_run_gives_its_title_to_the_new_one() -> None:
    def row(seq: int, record: journal.Record) -> LogRow:
        return LogRow({}, Line(seq, seq, "2026-11-24T03:00:00Z", 1, record))

    async def test() -> None:
        feed = Feed(lambda: satchel.open("x"), lambda: None)
        await feed._tell([row(8, journal.ScopeBegun(scope="1", title="of the old run"))])
        await feed._tell([row(2, journal.ScopeCommitted(scope="1"))])
        (event,) = feed.seen
        assert event.seq == 2 and "old run" not in event.words.text and event.took is None

    play(test)
