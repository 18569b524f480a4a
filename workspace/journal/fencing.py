"""How a writer of a journal made of objects excludes every earlier writer.

A fence is a segment of one record, created exclusively at the next name. There the earlier writer would have to put its
next commit, so it can't write. Then the journal is read again. If it ends with this fence, no other process was faster,
and everything that was acknowledged before is known.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from ..base import LeaseHeld, NewerFormat, taken_over
from ..store import Store, Version
from .naming import FOLDER, new_opening, segment_path, segments
from .reader import Tail
from .records.line import Line, now, parse_each, written
from .records.process import Fenced

_TRIES = 20
_READ_LIMIT = 1 << 30

Look = Callable[[Line | None], tuple[int, Tail]]
"""Reads the new part of the journal, and returns it with the epoch of its last record. Its argument is the fence, if
one was written; then the journal was just listed. Otherwise it makes a new listing."""


class Fence(NamedTuple):
    """A place in the journal, after which it belongs to this writer."""

    line: Line
    path: str
    version: Version
    data: bytes


def fence(store: Store, epoch: int, tail: Tail, look: Look) -> Fence:
    """Take the journal that ends with `tail`, written in `epoch`. LeaseHeld if other processes are faster again and
    again."""
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
        "other processes take this workspace at the same time",
        path=store.url,
        why=f"{_TRIES} attempts failed",
        remedy="let only one process run it",
    )


def check_newest(store: Store, epoch: int) -> None:
    """LeaseHeld if another writer has fenced off the one of `epoch`. Costs a listing of the journal, and a read of its
    newest segment unless this store wrote that. A writer's fence comes before all its other writes. So a file that was
    read before a successful check was not written by a later writer."""
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
    """Whether the writer of `epoch`, or an earlier one, has written this. An empty segment means that the run has moved
    away. A segment that can't be read comes from a newer Satchel."""
    try:
        lines = [*parse_each(segment.split(b"\n")[:-1])]
    except NewerFormat:
        return False
    return bool(lines) and lines[-1] is not None and lines[-1].epoch <= epoch
