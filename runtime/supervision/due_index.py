"""The index that `serve` keeps next to the runs of a root: what rests, for the next `serve`, and for lists of runs."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b, sha256
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ...workspace.base import SatchelError, version
from ...workspace.formats import decoder
from ...workspace.inspect import lease, transfer_file
from ...workspace.journal import CHECKPOINTS, checkpoint_position
from ...workspace.store import DiskStore, Syscalls
from .census import RunFigures

PATH = ".satchel/due.json"

_MANY = 500  # runs, below which reading them takes no time
_EVERY = 30.0  # seconds between two writes, of all processes together
_FRESH = 60.0  # seconds for which lists believe it
_LIMIT = 256 << 20
_TICK = 2_000_000_000  # nanoseconds: files that change twice within them may have one time

_ABSENT = (lease.PATH, transfer_file.BACKUP_NOTE, transfer_file.PATH)
"""Files that change what a run is, and are in no signature. A run that rests at its place has none of them."""


class RestingRow(Struct, frozen=True, omit_defaults=True):
    """What lists show of a run that rests, besides its figures and its workspace.yaml. It has no text of the run, so
    not the name of the checkpoint either: the title of an item may be in it."""

    at: str  # of the last record
    checkpoint: int  # the record of the one that has been read
    proof: str
    plan: tuple[int, int] | None = None  # items that are settled, and all; None: it has no plan
    asked: tuple[str, ...] = ()  # the ids of its open questions
    is_timed: bool = False  # it is paused until a time

    def __post_init__(self) -> None:
        datetime.fromisoformat(self.at)
        if not all(each.isascii() and each.isalnum() for each in self.asked):
            raise ValueError("no id of a question")


def proof_of(place: str, checkpoint: int) -> str:
    """Stands for the files that a row is made of, and that are in no signature. Empty: no row counts."""
    folder = f"{place}/{CHECKPOINTS}"
    try:
        names = [name for name in os.listdir(folder) if checkpoint_position(f"{CHECKPOINTS}/{name}") == checkpoint]
        status = [os.lstat(f"{folder}/{name}") for name in ("", *sorted(names))]
    except OSError:
        return ""
    if not names or any(os.path.lexists(f"{place}/{path}") for path in _ABSENT):
        return ""
    times = [(each.st_mtime_ns, each.st_size, each.st_ino) for each in status]
    is_settled = max(times)[0] < time.time_ns() - _TICK
    return blake2b(repr(times).encode(), digest_size=8).hexdigest() if is_settled else ""


class _PrivateCalls(Syscalls):
    """Make only files that no other user can read: one who may read the root may not read all its runs."""

    def give(self, fd: int, mode: int, owner: tuple[int, int] | None) -> None:
        super().give(fd, 0o600, owner)


class RestingRun(Struct, frozen=True, omit_defaults=True):
    """A run that was not due. `at`: when it becomes due by itself."""

    signature: str
    run_id: str
    at: Annotated[datetime, Meta(tz=True)] | None = None
    figures: RunFigures | None = None
    row: RestingRow | None = None

    def __post_init__(self) -> None:
        for text in (self.figures.opened_at, self.figures.asked_at) if self.figures else ():
            if text:
                datetime.fromisoformat(text)  # ValueError makes the whole index count for nothing


class _Content(Struct, frozen=True):
    satchel: str  # another version may judge otherwise
    runs: dict[str, RestingRun]  # by place, absolute


_content = decoder(_Content)


class DueIndex:
    """What is due when, as the last process that looked has found it, in a root with many runs, so that the next
    `serve` need not read all their records before it starts the first one, and lists need not read those that rest.

    Never the truth. It only says of a run that rests that it still does, as long as its files have the times and sizes
    that it was judged by; and each run is judged again by its files within the first minute, of over 40,000 runs within
    some minutes. So it starts nothing, and what is damaged, old, or made up delays a start by that time at most. Any
    other entry is as good as none.
    """

    def __init__(self, root: str):
        self._store = DiskStore(root, _PrivateCalls())
        self._written = float("-inf")  # by time.monotonic

    def read(self) -> dict[str, RestingRun]:
        """Empty if there is none that counts."""
        with suppress(SatchelError, OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            told, _, data = self._store.read(PATH, limit=_LIMIT).data.partition(b"\n")
            if told.decode() == sha256(data).hexdigest():
                content: _Content = _content.decode(data)
                if content.satchel == version():
                    self._written = time.monotonic()
                    return content.runs
        return {}

    def rows(self) -> dict[str, RestingRun]:
        """The runs with a row. Empty if no process has written it within a minute: then none looks at their files."""
        with suppress(SatchelError, OSError):
            if 0 <= self._age < _FRESH:
                return {place: run for place, run in self.read().items() if run.row and run.figures}
        return {}

    @property
    def _age(self) -> float:
        """Seconds since it was written."""
        at = self._store.trace(PATH).at
        return (datetime.now().astimezone() - datetime.fromisoformat(at)).total_seconds() if at else float("inf")

    def is_worth_writing(self, runs: int) -> bool:
        return runs >= _MANY and time.monotonic() >= self._written + _EVERY

    def write(self, runs: dict[str, RestingRun]) -> None:
        """Does nothing if another process has written it a moment ago, or if it can't be written."""
        self._written = time.monotonic()
        with suppress(SatchelError, OSError):
            if not 0 <= self._age < _EVERY / 2:
                data = msgspec.json.encode(_Content(version(), runs))
                self._store.replace(PATH, sha256(data).hexdigest().encode() + b"\n" + data, sync="no")
