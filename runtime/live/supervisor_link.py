"""How a process is told to stop: by signals, and by a supervisor through the first of two pipes.

The first signal, SIGINT or SIGTERM, asks the run to stop, the second cuts running work off, the third kills.

One pipe is the lifeline of a supervised process. It ends when the supervisor ends, however it ends. Its content is
lines. Through the other one the process tells that its event loop runs, that its run has stopped and only notices are
still being sent, and at its end its exit code and error: dots and other marks, then the last word. A process that ends
without this has crashed, whatever its exit code, because agents may end it with any code. A process without a
supervisor sends nothing.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple

from ...workspace.inspect import lease

WAS_ASKED = b"!\n"
"""A line of the lifeline: the supervisor has already requested a stop, and a second signal would force it."""

_LIMIT = 4096  # how much a pipe takes at once
_EVERY = 2.0
_BEAT, _RESTS, _WORKS = b".", b"~", b"+"
_PR_SET_PDEATHSIG = 1

_fd, _pid = -1, 0
_shares_slots = False
_has_run = False
_takes_turns: ContextVar[bool] = ContextVar("satchel-takes-turns", default=False)
"""Whether the run of the current task shares its process with others."""


class Word(NamedTuple):
    code: int
    text: str


class Heard(NamedTuple):
    is_alive: bool  # its loop has run since the last look
    rests: bool | None  # its run has stopped, and the process only waits for notices; None: as before
    word: Word | None


# Signals

_blocked: set[signal.Signals] = set()


def hold(*numbers: signal.Signals) -> None:
    """Block these signals until `release`, because a process that is still importing would die of them. Child processes
    inherit the block."""
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    _blocked.update(numbers)


def release() -> None:
    """The handlers are installed: handle blocked signals now. In the thread that has called `hold`."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _blocked)
    _blocked.clear()


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


# The process that is supervised


def begin(told: str) -> None:
    """Be the child of a supervisor: `told` is the value of `--supervised`, which is made in `Child` (child.py).

    Programs that this process starts do not inherit the pipes. From now on failed prints are ignored, because the log
    may be on a full disk.
    """
    global _fd, _pid, _shares_slots
    lifeline, up, supervisor, patience = told.split(",")
    _fd, _pid, _shares_slots = int(up), os.getpid(), supervisor == "0"
    os.set_inheritable(_fd, False)
    os.set_blocking(_fd, False)
    for name, number in (("stdout", 1), ("stderr", 2)):
        old = getattr(sys, name)
        file = io.BufferedWriter(_Lossy(number, "wb", closefd=False))
        setattr(sys, name, io.TextIOWrapper(file, old.encoding, old.errors, line_buffering=True))
    os.set_inheritable(int(lifeline), False)
    _wake_at_its_death()
    stop = (int(lifeline), float(patience) if patience else None)
    threading.Thread(target=_stop_with_it, args=stop, name="satchel-lifeline", daemon=True).start()
    if not _shares_slots:
        lease.supervised_by(int(supervisor))  # so that the lease says who would start this process again


def _wake_at_its_death() -> None:
    """If the supervisor dies while Ctrl-Z has stopped both, the system continues this process, which then notices."""
    if sys.platform == "linux":
        import ctypes  # slow, and a supervisor needs none of it

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def _stop_with_it(lifeline: int, patience: float | None) -> None:
    """Stop this process, as SIGTERM does, when the supervisor is gone. Kill its group if that takes longer than
    `patience` (seconds; None: never), or than a line of the lifeline says."""
    was_asked = False
    with open(lifeline, "rb", 0) as lines:
        for line in lines:
            if line == WAS_ASKED:
                was_asked = True
            else:
                patience = float(line) if line.strip() else None
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGCONT)  # what this process has started was stopped with it
    if not was_asked:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    if patience is not None:
        time.sleep(patience)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)


def is_first_run() -> bool:
    """Whether the run that begins now is the one that the supervisor has started. An agent may start more of them in
    this process, and their end is not its end."""
    global _has_run
    is_first, _has_run = not _has_run, True
    return is_first and _fd >= 0 and os.getpid() == _pid


def shares_slots() -> bool:
    """Whether this run is one of several that take turns, so that it must not wait long."""
    return _shares_slots or _takes_turns.get()


def take_turns() -> None:
    """The run of the current task shares its process with others that wait for its end."""
    _takes_turns.set(True)


@contextmanager
def beating() -> Iterator[None]:
    """While the body runs, report every few seconds that the event loop runs."""
    import asyncio  # a supervisor listens here, and needs no loop

    loop = asyncio.get_running_loop()
    timer: asyncio.Handle

    def beat() -> None:
        nonlocal timer
        _write(_BEAT)
        timer = loop.call_later(_EVERY, beat)

    timer = loop.call_soon(beat)
    try:
        yield
    finally:
        timer.cancel()


def rest(rests: bool) -> None:
    """Tell whether the run has stopped and this process only waits for its notices: `serve` gives its place away."""
    _write(_RESTS if rests else _WORKS)
    if rests and _fd >= 0:
        with suppress(OSError):  # the supervisor is gone
            os.kill(os.getppid(), signal.SIGCHLD)  # it listens to this, as at the end of a child


def leave(code: int, text: str = "") -> None:
    """Send the last word, at the very end."""
    _write(f"{code}\n{text}\n".encode("utf-8", "replace")[:_LIMIT])


def _write(data: bytes) -> None:
    if _fd >= 0 and os.getpid() == _pid:  # not in a fork of it
        with suppress(OSError):  # the supervisor is gone, or does not read
            os.write(_fd, data)


class _Lossy(io.FileIO):
    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError:
            return memoryview(data).nbytes  # type: ignore[arg-type]


# Its supervisor


def be_patient(seconds: float | None) -> bytes:
    """The line of the lifeline that says how long the child may drain after the end of the supervisor. None: for
    ever."""
    return b"\n" if seconds is None else f"{seconds}\n".encode()


def read(fd: int) -> Heard:
    """What came since the last call, at the other end, which does not block."""
    data = b""
    with suppress(BlockingIOError):  # a program that it has started may hold its end
        while more := os.read(fd, _LIMIT):
            data += more
    word = data.lstrip(_BEAT + _RESTS + _WORKS)
    marks = data[: len(data) - len(word)].replace(_BEAT, b"")
    code, _, text = word.decode("utf-8", "replace").partition("\n")
    last = Word(int(code), text.removesuffix("\n")) if code.isdecimal() else None
    return Heard(bool(data), marks.endswith(_RESTS) if marks else None, last)
