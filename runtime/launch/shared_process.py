"""The runs of a process that several share, as tasks of its event loop. supervision/sharing.py has what starts
such a process, tells it which runs to start and to stop, and is told how each has ended.

What a run prints goes to its own log. What it does to the process it does to all: `serve` then starts each of them
again alone.
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import IO, Any, TypeVar

from ...workspace.base import Refused, urls
from ...workspace.inspect import define, lease
from ...workspace.store import Store
from ..agent import code, file_of
from ..execution import RunOptions
from ..live import Interruption, release, supervisor_link
from ..status import Place
from ..supervision import ALONE, child
from .runner import LocalRun, RunResult

T = TypeVar("T")

_CUT_OFF = 130
_HANGS = 10.0
"""Seconds without the event loop, after which the process prints what each thread does: `serve` kills it soon."""
_EVERY = 2.0
_THREADS = 1000
"""Blocking calls of all runs at a time. Without threads left no other run goes on, and a loop has some 6."""

Ended = Callable[[Any, RunResult | Exception], tuple[int, str]]
"""Prints how a run has ended, and returns its exit code and what `serve` is to say of it."""


class SharedRuns:
    """The runs of this process, until it is told to end and none is left."""

    def __init__(self, channel: socket.socket, find: Callable[[str], Place], ended: Ended):
        """Orders come and reports go by `channel`. `find` opens the workspace in a folder or at a URL."""
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
            self._report(number, ALONE, "the process that it was to share ends")
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
                    code, text = ALONE, str(error)
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


# What runs print

_log: ContextVar[IO[str] | None] = ContextVar("satchel-log", default=None)
"""Of the run that the current code belongs to."""


def _log_of(store: Store) -> IO[str]:
    return io.TextIOWrapper(child.open_log(store), "utf-8", "backslashreplace", line_buffering=True)


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


def channel_of_stdin() -> socket.socket:
    """What this process was given as its stdin. From now on agents find an empty one there."""
    channel = socket.socket(fileno=os.dup(0))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return channel
