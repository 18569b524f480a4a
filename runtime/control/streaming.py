"""Run an agent in this process, and tell what happens as it happens."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...workspace import journal
from ...workspace.inspect import Look
from ...workspace.journal.records import Before, Line, now
from ...workspace.store import Store
from ...workspace.views import PartialHead
from ..agent import Agent
from ..execution import running
from .events import Event, RunEnded, Teller


async def stream(
    workspace: str | os.PathLike[str] | Store,
    agent: Agent | None = None,
    *args: Any,
    input: Mapping[str, Any] | None = None,
    wake: bool = False,
    accept_drift: bool = False,
    drain_timeout: float | None = None,
    take_over: bool = False,
    adopt: bool = False,
) -> AsyncGenerator[Event, None]:
    """Run the agent as `run_async` does, and yield what happens: records once they are durable, and text as it is
    streamed (`events.Tokens`, which is not durable). The last event is `events.RunEnded` with the outcome.

    If you leave the loop early, the run stops like one whose task is cancelled: paused, with everything written. That
    happens when the generator is closed; `async with contextlib.aclosing(...)` does it at once. Errors are those of
    `run_async`, after the events so far. The run does not wait for a slow reader.
    """
    store = running.store_of(workspace)
    tap = _Tap(store)
    task = asyncio.create_task(
        running.tapped(
            store,
            agent,
            *args,
            tap=tap,
            admit=tap.begin,
            input=input,
            wake=wake,
            accept_drift=accept_drift,
            drain_timeout=drain_timeout,
            take_over=take_over,
            adopt=adopt,
        )
    )
    task.add_done_callback(lambda _: tap.found.put_nowait(None))
    try:
        while (tell := await tap.found.get()) is not None:
            for event in tell():
                yield event
        for event in tap.rest():
            yield event
        outcome = await task
        yield RunEnded(seq=tap.teller.seq, at=now(), outcome=outcome)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error


class _Tap:
    """Collects what the run tells, and reads what it has written before it could tell."""

    teller: Teller
    _before: Before
    _has_begun = False

    def __init__(self, store: Store):
        self.found: asyncio.Queue[Any] = asyncio.Queue()
        self._store = store

    def begin(self, seen: Look) -> None:
        """What is on record by now is not told."""
        self.teller, self._before = Teller(seen.moment), seen.moment.before
        self._has_begun = True

    def recorded(self, lines: Sequence[Line]) -> None:
        self.found.put_nowait(partial(self._of_lines, lines))

    def streamed(self, head: PartialHead, text: str, offset: int) -> None:
        self.found.put_nowait(partial(self.teller.tokens, head, text, offset, now()))

    def rest(self) -> Iterator[Event]:
        """The records that nothing was told of."""
        if self._has_begun:
            yield from self._read(up_to=None)

    def _of_lines(self, lines: Sequence[Line]) -> Iterator[Event]:
        if lines[0].seq > self.teller.seq + 1:
            yield from self._read(up_to=lines[0].seq - 1)
        for line in lines:
            if line.seq > self.teller.seq:
                yield from self._of(line)

    def _read(self, up_to: int | None) -> Iterator[Event]:
        for line in journal.read(self._store, after=self.teller.seq, before=self._before).lines:
            if up_to is None or line.seq <= up_to:
                yield from self._of(line)

    def _of(self, line: Line) -> Iterator[Event]:
        self._before = line.before
        yield from self.teller.of(line)
