"""What a supervised process tells its supervisor: that its event loop runs, and at its end its exit code and error. A
process that ends without this has crashed, whatever its exit code, because agents may end it with any code.

All of it goes through one pipe: dots, then the last word. A process without a supervisor sends nothing.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import NamedTuple

_LIMIT = 4096  # how much a pipe takes at once
_EVERY = 2.0
_BEAT = b"."

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
    word: Word | None


# In the process that is supervised


def hold(fd: int, *, shares_slots: bool) -> None:
    """Send through `fd`, which programs that this process starts do not inherit. From now on failed prints are ignored,
    because the log may be on a full disk. `shares_slots`: other runs wait for this one's end."""
    global _fd, _pid, _shares_slots
    os.set_inheritable(fd, False)
    os.set_blocking(fd, False)
    _fd, _pid, _shares_slots = fd, os.getpid(), shares_slots
    for name, number in (("stdout", 1), ("stderr", 2)):
        old = getattr(sys, name)
        file = io.BufferedWriter(_Lossy(number, "wb", closefd=False))
        setattr(sys, name, io.TextIOWrapper(file, old.encoding, old.errors, line_buffering=True))


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


# In its supervisor


def read(fd: int) -> Heard:
    """What came since the last call, at the other end, which does not block."""
    data = b""
    with suppress(BlockingIOError):  # a program that it has started may hold its end
        while more := os.read(fd, _LIMIT):
            data += more
    beats = len(data) - len(data.lstrip(_BEAT))
    code, _, text = data[beats:].decode("utf-8", "replace").partition("\n")
    return Heard(bool(data), Word(int(code), text.removesuffix("\n")) if code.isdecimal() else None)
