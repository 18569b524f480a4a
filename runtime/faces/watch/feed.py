"""What is known of one run: its status, its latest events, and the text that is being streamed.

Reads in threads, again and again, and never gives up: a run that is moved, damaged, deleted or offline comes back by
itself. `changed` is called in the event loop after each change.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from msgspec.structs import replace

from ....workspace.base import SatchelError
from ...api import OVER, Handle, Latest, LogRow, RunStatus, Shot, events
from ...present import Timeline, TimelineEvent

_RECORDS = 5000
"""How many records the timeline keeps."""

_TEXT = 64 << 10
"""How many characters of each streamed answer are kept, from its end."""

_LOOK, _REMOTE_LOOK = 2.0, 6.0
"""Seconds between two looks if no event tells of a change: for files of people, and a process that ends. Nothing is
read if nothing has changed. A bucket costs a listing for each."""

_WHOLE = 15.0
"""Seconds until the whole status is read all the same, for edits that change no name of the run's own folder."""

_SHARE = 4
"""A look is followed by a rest that is so many times as long."""

_SOON = 0.3
_AGAIN = (1.0, 2.0, 5.0, 10.0)
"""Seconds until the next attempt, if the events can't be read."""

_AT_ONCE = 200
"""Events that are taken before keys get their turn."""


@dataclass
class StreamedAnswer:
    """An answer that is being streamed: its call and the end of its text. `length` counts all characters."""

    agent: str
    scope: str
    call: str
    at: str = ""  # of its last text
    text: str = ""
    length: int = 0


class Feed:
    """The reader of one run. `make` returns a handle on it: each task has its own, and uses it in one thread a time."""

    def __init__(self, make: Callable[[], Handle], changed: Callable[[], None]):
        self.status: RunStatus | None = None
        self.seen: deque[TimelineEvent] = deque(maxlen=_RECORDS)
        self.streams: dict[tuple[str, str, int], StreamedAnswer] = {}
        self.seq = 0  # of the last event
        self.problem = ""  # why the events can't be read
        self._make, self._changed = make, changed
        self._timeline = Timeline()
        self._wake = asyncio.Event()
        self._reading: asyncio.Future[None] | None = None
        self._event_at = 0.0  # when the last event came, by time.monotonic

    def look_now(self) -> None:
        """Look at the status as soon as possible."""
        self._wake.set()

    async def look(self) -> None:
        """Keep the status current."""
        latest: Latest | None = None
        is_remote, read = False, float("-inf")
        while True:
            began = time.monotonic()
            is_whole = self._wake.is_set() or began - read > _WHOLE
            self._wake.clear()
            try:
                if latest is None:
                    handle = await asyncio.to_thread(self._make)
                    latest, is_remote = Latest(handle, rows=_RECORDS), handle.store.abilities.remote
                shot = await asyncio.to_thread(self._status, latest, is_whole)
                self._keep(shot.status, shot.problem)
                await self._tell(shot.rows)
                read = began if is_whole else read
            except Exception as error:  # one that no reader has foreseen must not end the view either
                self._keep(None, error)
            self._begin_again_if_replaced(began)
            self._changed()
            rest = max(_SOON, _SHARE * (time.monotonic() - began))
            await asyncio.sleep(rest)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.0, (_REMOTE_LOOK if is_remote else _LOOK) - rest))

    @staticmethod
    def _status(latest: Latest, is_whole: bool) -> Shot:
        shot = latest.look(whole=is_whole)
        if shot.status.plan is not None:
            _ = shot.status.plan.progress, shot.status.plan.tasks  # they are parsed here, and not by the screen
        return shot

    def _keep(self, found: RunStatus | None, problem: Exception | None) -> None:
        """Take the new status, or the last known one with the reason why there is no newer one."""
        if found is None or problem is not None:
            ours = problem if isinstance(problem, SatchelError) else SatchelError("can't be read", why=str(problem))
            found = replace(found or self.status or RunStatus("", state="damaged"), problem=ours)
        self.status = found

    async def _tell(self, rows: Sequence[LogRow]) -> None:
        """Put the records since the last look into words, in a thread: of a long run they are thousands at first."""
        newest = self.seen[-1].seq if self.seen else 0
        if rows and rows[-1].line.seq < newest:  # another run has taken this place
            self.seen.clear()
            self._timeline, newest = Timeline(), 0
        words, after = self._timeline, bisect_right(rows, newest, key=lambda row: row.line.seq)
        if after < len(rows):
            self.seen.extend(await asyncio.to_thread(lambda: [words.of(row.line) for row in rows[after:]]))

    def _begin_again_if_replaced(self, looked: float) -> None:
        """If a look that began after the last event finds fewer records, another run has taken this place."""
        moment = self.status.moment if self.status and not self.status.problem else None
        if moment is not None and moment.seq < self.seq and looked > self._event_at and self._reading is not None:
            self._forget()
            self._reading.cancel()

    async def follow(self) -> None:
        """Take the events as they come."""
        failures = 0
        while True:
            self._reading = asyncio.ensure_future(self._read())
            try:
                await self._reading
                failures, self.problem = 0, ""
                await self._until_it_runs_again()
            except Exception as error:
                failures, self.problem = failures + 1, str(error)
                self._changed()
                await asyncio.sleep(_AGAIN[min(failures, len(_AGAIN)) - 1])
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise

    async def _read(self) -> None:
        handle = await asyncio.to_thread(self._make)
        count = 0
        async with aclosing(handle.events(after=self.seq, follow=True)) as happening:
            async for event in happening:
                self._add(event)
                self.problem, self._event_at = "", time.monotonic()
                self._changed()
                if not isinstance(event, events.Tokens):
                    self._wake.set()
                count += 1
                if count % _AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def _until_it_runs_again(self) -> None:
        """A finished run is not read again until it has new records."""
        known: int | None = None
        while True:
            await asyncio.sleep(1.0)
            status = self.status
            if status is None or status.moment is None or status.problem:
                continue
            known = status.moment.seq if known is None else known
            if status.moment.seq != known or status.moment.status not in OVER:
                return

    def _forget(self) -> None:
        self.seen.clear()
        self.streams.clear()
        self._timeline = Timeline()
        self.seq = 0

    def _add(self, event: events.Event) -> None:
        if isinstance(event, events.Tokens):
            self._stream(event)
            return
        self.seq = event.seq
        match event:
            case events.StepCompleted() | events.StepFailed() | events.StepRetried():
                self._end_streams((event.agent, event.scope, event.no), event.at)
            case events.ItemCommitted() | events.ItemFailed():
                self._end_streams((event.agent, event.scope), event.at)
            case events.RunStopped() | events.RunStarted():
                self._end_streams((), event.at)

    def _end_streams(self, begin: tuple[object, ...], at: str) -> None:
        """Those whose keys begin so have ended. A later text is of a later attempt: the first look reads it before it
        reads what has happened."""
        ended = [key for key, stream in self.streams.items() if key[: len(begin)] == begin and stream.at <= at]
        for key in ended:
            del self.streams[key]

    def _stream(self, event: events.Tokens) -> None:
        key = event.agent, event.scope, event.no
        stream = self.streams.pop(key, None) or StreamedAnswer(event.agent, event.scope, f"{event.step}{event.call}")
        kept = stream.text
        if event.offset < stream.length:  # another attempt has begun again
            kept = kept[: len(kept) - (stream.length - event.offset)] if event.offset else ""
        stream.at = event.at
        stream.text, stream.length = (kept + event.text)[-_TEXT:], event.offset + len(event.text)
        self.streams[key] = stream  # the newest is the last
