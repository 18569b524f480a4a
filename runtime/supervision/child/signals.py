"""Signals as bytes that a loop waits for: handlers do nothing else, and no signal is missed between two looks."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from ...live import release

ASKED = (signal.SIGINT, signal.SIGTERM)
_HEARD = (*ASKED, signal.SIGCHLD, signal.SIGTSTP)


class Bell:
    """Rings when a signal to stop comes, when a child has ended, and at Ctrl-Z."""

    def __init__(self, reading: int):
        self._reading = reading

    def wait(self, seconds: float) -> list[signal.Signals]:
        """Wait until it rings, at most so long. Returns the signals since the last call, each as often as it came."""
        ready, _, _ = select.select([self._reading], [], [], max(0.0, seconds))
        came = os.read(self._reading, 4096) if ready else b""
        return [signal.Signals(number) for number in came]


@contextmanager
def listening() -> Iterator[Bell]:
    """SIGINT, SIGTERM, SIGCHLD and Ctrl-Z ring the bell while the body runs. Only in the main thread."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    ignored = {signal.SIGTSTP} if signal.getsignal(signal.SIGTSTP) is signal.SIG_IGN else set()
    before = {number: signal.signal(number, lambda *_: None) for number in _HEARD if number not in ignored}
    release()
    try:
        yield Bell(reading)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(reading)
        os.close(writing)
