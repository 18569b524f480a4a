"""SIGINT and SIGTERM, as a flag that every call of the agent looks at, and a cancellation for what is waiting."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Interruption:
    """Whether the process was asked to stop."""

    def __init__(self) -> None:
        self.came = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Handle the signals while the body runs; the task that calls this is cancelled when one comes. A second one
        ends the process at once, without waiting for threads that are still at work."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop(number: int, frame: object) -> None:
            if self.came:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            self.came = True
            loop.call_soon_threadsafe(task.cancel)

        # Not loop.add_signal_handler: an agent whose steps never wait would not hear of the signal.
        before: dict[signal.Signals, Any] = {}
        with suppress(ValueError):  # only the main thread may
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
