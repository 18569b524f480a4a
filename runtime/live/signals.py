"""SIGINT and SIGTERM: the first asks the run to stop, the second cuts running work off, the third kills."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

_held: set[signal.Signals] = set()


def hold(*numbers: signal.Signals) -> None:
    """Block these signals until `release`, because a process that is still importing would die of them. Child processes
    inherit the block."""
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    _held.update(numbers)


def release() -> None:
    """The handlers are installed: handle blocked signals now. In the thread that has called `hold`."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _held)
    _held.clear()


class Interruption:
    """Whether and how often the process was asked to stop."""

    def __init__(self) -> None:
        self.count = 0
        self.name = ""  # of the last signal
        self.heard: Callable[[], Any] | None = None
        """Called from the handler, at any point of the main thread's code, each time one has come."""

    def come(self, name: str) -> None:
        """As if a signal had come."""
        self.count, self.name = self.count + 1, name
        if self.heard:
            self.heard()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Handle the signals while the body runs. The third ends the process at once, without waiting for running
        threads."""

        def handle(number: int, frame: object) -> None:
            if self.count >= 2:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            self.come(signal.Signals(number).name)

        # Not loop.add_signal_handler: it would not run in an agent whose steps never wait.
        before: dict[signal.Signals, Any] = {}
        with suppress(ValueError):  # only the main thread may
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, handle)
            release()
        try:
            yield
        finally:
            self.heard = None
            for number, handler in before.items():
                signal.signal(number, handler)
