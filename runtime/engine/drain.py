"""From the request to stop to the safe point.

This module knows what is running: the functions of steps and effects, uninterrupted blocks, and the writes of their
records. When a stop is requested and none of these is left, the run is between two steps. Then whatever the agent waits
for is cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Self

from msgspec import Struct

_PATIENCE = 0.01
"""Seconds for an agent to continue by itself: from its last step to its commit, or to a call that stops it."""

_UNWINDING = 5.0
"""Seconds for a stopped agent to clean up."""


class _Work(Struct, eq=False):
    """A part of the agent's code that finishes before the run stops."""

    what: object  # its text is for people
    task: asyncio.Task[Any] | None
    drain: Drain
    around: _Work | None = None
    ended: bool = False

    def __enter__(self) -> Self:
        self.drain.at_work[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True
        self.drain.has_ended(self)


_held_here: ContextVar[_Work | None] = ContextVar("held_here", default=None)
"""The innermost uninterrupted block. Tasks made in one inherit it and may outlive it."""


class Drain:
    """For one run. Used from its loop."""

    def __init__(self) -> None:
        self.forced = False  # running work is not waited for any more
        self.has_cancelled = False  # the agent was cancelled where it waited
        self._wanted = False
        self._main: asyncio.Task[Any] | None = None
        self._told = 0.0  # when the agent itself was stopped by a call
        self.has_told = False  # some code was stopped by a call, so the agent must unwind
        self.at_work: dict[_Work, None] = {}  # oldest first
        self._is_planned = False

    @property
    def is_held_here(self) -> bool:
        """Whether the caller is in an uninterrupted block."""
        work = _held_here.get()
        while work is not None and work.ended:
            work = work.around
        return work is not None

    @property
    def under_way(self) -> tuple[str, ...]:
        """The running work, in words, oldest first."""
        return tuple(str(work.what) for work in self.at_work)

    def working(self, what: object) -> AbstractContextManager[object]:
        """The body is a step's function: a stop waits for it. `what` it is, in words, is asked only then."""
        return _Work(what, asyncio.current_task(), self)

    @contextmanager
    def held(self, what: object) -> Iterator[None]:
        """The body finishes before the run stops, with all its steps."""
        with _Work(what, asyncio.current_task(), self, _held_here.get()) as work:
            token = _held_here.set(work)
            try:
                yield
            finally:
                _held_here.reset(token)

    def watch(self, main: asyncio.Task[Any]) -> None:
        """From now on a stop cancels `main`."""
        self._main, self._told, self.has_told = main, 0.0, False
        self.forced = self.has_cancelled = self._wanted = False

    def want(self) -> None:
        """Request a stop."""
        self._wanted = True
        self._look_soon(_PATIENCE)

    def want_no_more(self) -> None:
        """The request is withdrawn before any code was stopped for it."""
        self._wanted = False

    def told(self) -> None:
        """A call has just told its caller to stop. If the caller is the agent itself, it is unwinding."""
        self.has_told = True
        if self._main is not None and asyncio.current_task() is self._main and not self._told:
            self._told = time.monotonic()

    def still_waits(self) -> None:
        """The agent itself was stopped by a call, but first waits for its other scopes."""
        self._told = 0.0
        if self._wanted:
            self._look_soon(_PATIENCE)

    def force(self) -> tuple[str, ...]:
        """Stop without waiting for running work. Returns what that was."""
        cut_off = self.under_way
        self.forced = self.has_cancelled = self._wanted = True
        for work in self.at_work:
            if work.task is not None:
                work.task.cancel()
        if self._main is not None:
            self._main.cancel()
        return cut_off

    def has_ended(self, work: _Work) -> None:
        del self.at_work[work]
        if self._wanted:
            self._look_soon(_PATIENCE)

    def _look_soon(self, delay: float) -> None:
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_later(delay, self._look)

    def _look(self) -> None:
        self._is_planned = False
        main = self._main
        if main is None or main.done() or self.at_work or not self._wanted:
            return
        if not self._told or time.monotonic() > self._told + _UNWINDING:
            self.has_cancelled = True
            main.cancel()  # at a safe point: between two steps, or while it waits for something else
        self._look_soon(1.0)  # it may have caught that
