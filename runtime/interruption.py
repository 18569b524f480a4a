"""SIGINT and SIGTERM, as a flag that every call of the agent looks at, and a cancellation for what is waiting."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=False)
class _Hold:
    """A part of the agent's code that must come to its end, and the one around it."""

    name: str
    around: _Hold | None
    ended: bool = False


_held_here: ContextVar[_Hold | None] = ContextVar("held_here", default=None)
"""The innermost hold. Tasks made in one inherit it, and may outlive it."""


class Interruption:
    """Whether the process was asked to stop."""

    def __init__(self) -> None:
        self.came = False
        self.holds: list[_Hold] = []  # what must come to its end first
        self._cancel: Callable[[], Any] | None = None

    @property
    def is_held_here(self) -> bool:
        """Whether the code that asks is within a part that must not be interrupted."""
        hold = _held_here.get()
        while hold is not None and hold.ended:
            hold = hold.around
        return hold is not None

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """The body comes to its end before the run stops."""
        hold = _Hold(name, _held_here.get())
        token = _held_here.set(hold)
        self.holds.append(hold)
        try:
            yield
        finally:
            hold.ended = True
            self.holds.remove(hold)
            _held_here.reset(token)
            if self.came and not self.holds and self._cancel:
                # Not at once: this may be that task, and one that is about to end must not end as cancelled.
                asyncio.get_running_loop().call_soon(self._cancel)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Handle the signals while the body runs; the task that calls this is cancelled when one comes. A second one
        ends the process at once, without waiting for threads that are still at work."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._cancel = task.cancel

        def stop(number: int, frame: object) -> None:
            if self.came:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            self.came = True
            if not self.holds:
                loop.call_soon_threadsafe(task.cancel)

        # Not loop.add_signal_handler: an agent whose steps never wait would not hear of the signal.
        before: dict[signal.Signals, Any] = {}
        with suppress(ValueError):  # only the main thread may
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, stop)
        try:
            yield
        finally:
            self._cancel = None
            for number, handler in before.items():
                signal.signal(number, handler)
