"""Run the agent of a workspace in this process: return the outcome, or yield what happens as it happens."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from msgspec import field
from msgspec.structs import asdict, fields

from ...workspace import journal
from ...workspace.base import AgentError, UsageError
from ...workspace.inbound import inbox, not_settled
from ...workspace.inspect import Look
from ...workspace.journal import Before, Failure, Line, Output, now
from ...workspace.plan import Progress
from ...workspace.state import Pause
from ...workspace.store import Store
from ...workspace.views import PartialHead
from ..agent import Agent
from ..execution import After, Outcome, RunOptions, Start, running
from ..live import Interruption
from ..status import Event, OpenQuestion, Place, RunEnded, Teller, questions_of


class RunResult(Outcome):
    """How a run stopped, what this call has added to it, and what is on record now.

    In addition to an `Outcome`: `steps` that this call has recorded, in `seconds`; `items` of the plan, finished and
    total; `outputs` by path; `failure`, the recorded error of the agent; `reason` and `pause`, why it stopped;
    `questions`, those that are open; `waiting`, files in the inbox of a run that had completed before; `wants_merge`: a
    file and the run conflict, and a person must resolve that before it can continue.
    """

    url: str = ""
    run_id: str = ""
    steps: int = 0
    seconds: float = 0.0
    items: Progress = field(default_factory=lambda: Progress(0, 0))
    outputs: dict[str, Output] = field(default_factory=dict)
    failure: Failure | None = None
    reason: str = ""
    pause: Pause | None = None
    questions: list[OpenQuestion] = field(default_factory=list)
    waiting: int = 0
    wants_merge: bool = False


class LocalRun:
    """A run in this process, from its options until it stops, and its result."""

    _store: Store
    _began: float
    _steps = 0

    def __init__(
        self,
        place: Place,
        options: RunOptions,
        interruption: Interruption | None = None,
        rest: Callable[[bool], None] | None = None,
    ):
        """`rest` is called when the run only waits for its notices, and when it goes on."""
        self._place, self._options = place, options
        self._interruption, self._rest = interruption or Interruption(), rest

    def blocking(self) -> RunResult:
        start = self._start()
        with no_exit(self._place):
            return self._ended(running.with_signals(start, self._admit))

    async def without_blocking(self) -> RunResult:
        """In the loop of its caller, which no look blocks."""
        start = await asyncio.to_thread(self._start, shares_loop=True)
        with no_exit(self._place):
            after = await running.until_stop(start, self._admit)
        return await asyncio.to_thread(self._ended, after)

    def _start(self, *, shares_loop: bool = False) -> Start:
        self._store, self._began = self._place.store_of_a_run(), time.monotonic()
        options = asdict(self._options)
        interruption, rest = self._interruption, self._rest
        return Start(store=self._store, interruption=interruption, rest=rest, shares_loop=shares_loop, **options)

    def _admit(self, seen: Look) -> None:
        if self._options.wake and seen.moment.is_new:
            raise UsageError(
                "nothing to resume yet",
                path=self._store.url,
                why="this run has never started",
                remedy=f"start it with `{self._place.command('run')}`",
            )
        self._steps = seen.moment.usage.steps

    def _ended(self, after: After) -> RunResult:
        store, (outcome, moment) = self._store, after
        status, entered = outcome.status, outcome.entered
        ended = RunResult(**{each.name: getattr(outcome, each.name) for each in fields(Outcome)})
        ended.url, ended.run_id, ended.seconds = store.url, moment.run_id, time.monotonic() - self._began
        ended.steps = moment.usage.steps - self._steps
        ended.items, ended.outputs = moment.root.plan.progress, moment.outputs
        ended.failure = moment.error if status == "failed" else None
        ended.reason, ended.pause = moment.reason, moment.pause
        ended.questions = questions_of(moment, self._place)
        ended.waiting = len(inbox.waiting(store, moment)) if status == "completed" and not entered else 0
        ended.wants_merge = status in ("paused", "failed") and bool(not_settled(store, moment))
        return ended


@contextmanager
def no_exit(place: Place) -> Iterator[None]:
    """An agent that ends the process is wrong, and must not end the caller's."""
    try:
        yield
    except SystemExit as error:
        raise AgentError(
            f"the agent ended the process (sys.exit({error.code!r}))",
            why="the run can't record anything after that, as in a crash",
            remedy=f"let it raise an exception or return; `{place.command('resume')}` continues from its last step",
        ) from error


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
    start = Start(
        store=store,
        interruption=Interruption(),
        agent=agent,
        args=args,
        input=input,
        wake=wake,
        accept_drift=accept_drift,
        drain_timeout=drain_timeout,
        take_over=take_over,
        adopt=adopt,
        tap=tap,
        shares_loop=True,
    )
    task = asyncio.create_task(running.until_stop(start, tap.begin))
    task.add_done_callback(lambda _: tap.found.put_nowait(None))
    try:
        while (tell := await tap.found.get()) is not None:
            for event in tell():
                yield event
        for event in tap.rest():
            yield event
        after = await task
        yield RunEnded(seq=tap.teller.seq, at=now(), outcome=after.outcome)
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
