"""How one writer of a journal made of objects keeps every earlier one out.

A fence is a segment of one record, created exclusively at the next name: that is where the earlier writer would have
to put its next commit, so it can't. Then the journal is read again; only if it ends with this very fence nobody was
faster, and everything that was acknowledged before is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..errors import LeaseHeld
from ..record import Fenced, Line, now, written
from ..store import Store, Version
from .naming import FOLDER, new_opening, segment_path
from .reading import Tail

_TRIES = 20

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
