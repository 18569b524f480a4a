"""Run agents in this process: one, with its outcome or with what happens as it happens; or those of `serve` that share
the process, as tasks of its event loop.

supervision/sharing.py has what starts a shared process, tells it which runs to start and to stop, and is told how each
has ended. What a run prints goes to its own log. What it does to the process it does to all: `serve` then starts each
of them again alone.
"""

from __future__ import annotations

import asyncio
import faulthandler
import io
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import IO, Any, TypeVar

from msgspec import field
from msgspec.structs import asdict, fields

from ...workspace import journal
from ...workspace.base import AgentError, Refused, UsageError, urls
from ...workspace.inbound import inbox, not_settled
from ...workspace.inspect import Look, define, lease
from ...workspace.journal import Before, Failure, Line, Output, now
from ...workspace.plan import Progress
from ...workspace.state import Pause
from ...workspace.store import Store
from ...workspace.views import PartialHead
from .. import supervision
from ..agent import Agent, code, file_of
from ..execution import After, Outcome, RunOptions, Start, running
from ..live import Interruption, release, supervisor_link
from ..status import Event, OpenQuestion, Place, RunEnded, Teller, questions_of

T = TypeVar("T")

_CUT_OFF = 130

_HANGS = 10.0
"""Seconds without the event loop, after which the process prints what each thread does: `serve` kills it soon."""

_EVERY = 2.0

_THREADS = 1000
"""Blocking calls of all runs at a time. Without threads left no other run goes on, and a loop has some 6."""


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


Ended = Callable[[Any, RunResult | Exception], tuple[int, str]]
"""Prints how a run has ended, and returns its exit code and what `serve` is to say of it."""


class SharedRuns:
    """The runs of this process, until it is told to end and none is left."""

    def __init__(self, channel: socket.socket, find: Callable[[str], Place], ended: Ended):
        """Orders come and reports go by `channel`. `find` opens the workspace in a folder or at a URL."""
        from ..supervision import ALONE, child  # noqa: F401  # now: later the files may be those of another version

        self._channel, self._find, self._ended = channel, find, ended
        self._runs: dict[int, tuple[asyncio.Task[None], Interruption]] = {}
        self._leaves = False
        self._thread = ThreadPoolExecutor(1, "satchel-sharing")
        self._writer: asyncio.StreamWriter

    def work(self) -> None:
        """In the main thread."""
        lease.share()
        with _output_by_run():
            asyncio.run(self._work())

    async def _work(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self._channel)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(_THREADS, "satchel-shared"))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._terminate, number.name)
        release()
        with supervisor_link.beating(), _watched(loop):
            with suppress(ConnectionError):  # `serve` has been killed: the lifeline tells
                async for line in reader:
                    self._obey(json.loads(line))
            while self._runs:
                await asyncio.wait([task for task, _ in self._runs.values()])
            with suppress(OSError):  # `serve` is gone
                await self._writer.drain()

    def _obey(self, order: dict[str, Any]) -> None:
        if (number := order.get("run")) is None:
            _, interruption = self._runs.get(order["ask"], (None, Interruption()))
            _ask(interruption, order["signal"])
        elif self._leaves:
            self._report(number, supervision.ALONE, "the process that it was to share ends")
        else:
            interruption = Interruption()
            task = asyncio.create_task(self._run(number, order["folder"], order["drain_timeout"], interruption))
            task.set_name(f"satchel-run {order['folder']}")
            self._runs[number] = task, interruption

    def _terminate(self, name: str) -> None:
        """A signal has come to the process, or `serve` is gone: all runs stop at their next safe points."""
        self._leaves = True
        self._send({"leaves": True})
        for _, interruption in self._runs.values():
            _ask(interruption, name)

    async def _run(self, number: int, folder: str, drain_timeout: float | None, interruption: Interruption) -> None:
        code, text = _CUT_OFF, ""
        try:
            with ExitStack() as stack:
                place = await self._aside(folder, self._find, folder)
                _log.set(stack.enter_context(await self._aside(folder, _log_of, place.store)))
                try:
                    await self._aside(folder, _take_modules, place.store, stack)
                except Refused as error:
                    code, text = supervision.ALONE, str(error)
                    return
                found: RunResult | Exception
                try:
                    rest = lambda rests: self._send({"run": number, "rests": rests})  # noqa: E731
                    run = LocalRun(place, RunOptions(drain_timeout=drain_timeout), interruption, rest)
                    found = await run.without_blocking()
                except Exception as error:
                    found = error
                code, text = await self._aside(folder, self._ended, place, found)
        except Exception as error:
            code, text = self._ended(None, error)
        finally:
            del self._runs[number]
            self._report(number, code, text)

    async def _aside(self, folder: str, work: Callable[..., T], *args: Any) -> T:
        """What `work` returns. One at a time on a disk: there it computes, and many threads that do so keep the loop
        waiting for the interpreter."""
        threads = None if urls.is_remote(folder) else self._thread
        return await asyncio.get_running_loop().run_in_executor(threads, partial(copy_context().run, work, *args))

    def _report(self, number: int, code: int, text: str) -> None:
        self._send({"run": number, "code": code, "text": text})

    def _send(self, said: dict[str, Any]) -> None:
        self._writer.write(json.dumps(said).encode() + b"\n")


def channel_of_stdin() -> socket.socket:
    """What this process was given as its stdin. From now on agents find an empty one there."""
    channel = socket.socket(fileno=os.dup(0))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return channel


def _ask(interruption: Interruption, name: str) -> None:
    """SIGTERM counts once: it comes to a process and to its `serve`, which passes it on."""
    if name == signal.SIGINT.name or not interruption.count:
        interruption.come(name)


def _take_modules(store: Store, stack: ExitStack) -> None:
    """Keep the agent's own modules for it, until the end of the stack. Refused if another run here means others by the
    same names."""
    try:
        file = file_of(store, define(store).agent)
    except Exception:
        return  # the start itself says what is wrong
    stack.enter_context(code.running(file))


@contextmanager
def _watched(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """While the body runs, print what each thread does if the loop hangs, and if the process dies of a fault."""
    timer: asyncio.TimerHandle

    def look_later() -> None:
        nonlocal timer
        faulthandler.dump_traceback_later(_HANGS, file=2)
        timer = loop.call_later(_EVERY, look_later)

    faulthandler.enable(2)
    look_later()
    try:
        yield
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()


_log: ContextVar[IO[str] | None] = ContextVar("satchel-log", default=None)
"""Of the run that the current code belongs to."""


def _log_of(store: Store) -> IO[str]:
    return io.TextIOWrapper(supervision.child.open_log(store), "utf-8", "backslashreplace", line_buffering=True)


@contextmanager
def _output_by_run() -> Iterator[None]:
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _ByRun(sys.stdout), _ByRun(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _ByRun(io.TextIOBase):
    """Writes to the log of the current run; without one to where the process writes."""

    def __init__(self, otherwise: IO[str]):
        self._otherwise = otherwise

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    def fileno(self) -> int:
        return self._otherwise.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # its disk is full, or the run has ended
            (_log.get() or self._otherwise).write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            (_log.get() or self._otherwise).flush()
