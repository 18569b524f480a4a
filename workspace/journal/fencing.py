"""How one writer of a journal made of objects keeps every earlier one out.

A fence is a segment of one record, created exclusively at the next name: that is where the earlier writer would have
to put its next commit, so it can't. Then the journal is read again; only if it ends with this very fence nobody was
faster, and everything that was acknowledged before is known.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from ..base import LeaseHeld, NewerFormat, taken_over
from ..store import Store, Version
from .naming import FOLDER, new_opening, segment_path, segments
from .reader import Tail
from .records.line import BadLine, Line, now, parse, written
from .records.process import Fenced

_TRIES = 20
_READ_LIMIT = 1 << 30

Look = Callable[[Line | None], tuple[int, Tail]]
"""Reads the journal again, all that was not known before, with the epoch of its last record. It is given the fence that
was put up, if one was; then the journal was just listed. Otherwise it takes a new listing."""


class Fence(NamedTuple):
    """A place in the journal from which on it is this writer's."""

    line: Line
    path: str
    version: Version
    data: bytes


def fence(store: Store, epoch: int, tail: Tail, look: Look) -> Fence:
    """Take the journal that ends with `tail`, written in `epoch`. LeaseHeld if others take it again and again."""
    for _ in range(_TRIES):
        seq = tail.next_seq
        data, line = written(Line(seq, seq, now(), epoch + 1, Fenced(), tail.crc, new_opening()))
        path = segment_path(line.seq)
        try:
            store.create(path, data)
        except FileExistsError:
            epoch, tail = look(None)
            continue
        store.refresh(FOLDER)
        version = store.version(path)
        epoch, tail = look(line)
        if version is not None and tail.lines and tail.lines[-1] == line:
            return Fence(line, path, version, data)
    raise LeaseHeld(
        "others take this workspace at the same time", path=store.url, why=f"{_TRIES} attempts were not enough",
        remedy="let one process run it",
    )  # fmt: skip


def check_newest(store: Store, epoch: int) -> None:
    """LeaseHeld if another writer has fenced off the one of `epoch`. Costs a listing of the journal, and a read of its
    newest segment unless this store wrote that. A writer's fence comes before all else that it writes: so a file that
    was looked at before this check was not written by a later one, unless the check fails."""
    while True:
        store.refresh(FOLDER)
        newest = max(segments(store), default=0)
        if not newest:
            return
        with suppress(FileNotFoundError):  # rolled up meanwhile
            if not _is_of(store.read(segment_path(newest), limit=_READ_LIMIT).data, epoch):
                raise taken_over(segment_path(newest), "it has written to the journal")
            return


def _is_of(segment: bytes, epoch: int) -> bool:
    """Whether the writer of `epoch`, or one before it, has written this. An empty segment stands where a run has moved
    away, and what can't be read is a newer Satchel's."""
    lines = segment.split(b"\n")
    try:
        return len(lines) > 1 and parse(lines[-2]).epoch <= epoch
    except (BadLine, NewerFormat):
        return False
