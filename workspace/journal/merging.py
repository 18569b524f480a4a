"""Merge the small segments of many short openings, so that a run started every minute has few files.

The merged segment replaces the first of them in one rename; then the others are removed. A crash in between leaves
segments whose records the merged one holds too. Readers count each record once, and the next merge removes them.

The newest segment is not merged: only it may be torn, and an opening needs little else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ..base import SatchelError, StorageFailed
from ..store import Store
from .naming import segment_path, sizes
from .records.line import crc_of, parse_each
from .records.process import Fenced

MANY = 16
"""A row of so many small segments is merged."""

SMALL_BYTES = 1 << 20
"""A segment of this size is not merged again, so that records are not copied for ever."""


class _Whole(NamedTuple):
    """A segment that was read, with every checksum right."""

    first: int
    rows: Sequence[bytes]
    follows: str  # the crc that its first record names as the one before it

    @property
    def due(self) -> int:
        """The next record."""
        return self.first + len(self.rows)


def merge(store: Store) -> None:
    """Merge the newest row of small segments if it is long. Only for the owner of the workspace.

    The row begins after a segment that can't be read, is damaged, or comes from a bucket's journal: those stay as they
    are. If the storage fails, everything stays, because a run that has ended well must not fail over this.
    """
    row = _small(sizes(store))
    if len(row) < MANY:
        return
    whole: list[_Whole] = []
    for first in row:
        segment = _read(store, first)
        if segment is None or (whole and segment.due < whole[-1].first):
            break
        whole.append(segment)
    if len(whole) >= MANY:
        with suppress(StorageFailed):
            _replace(store, whole[::-1])


def _small(found: dict[int, int]) -> Sequence[int]:
    """The longest row of small segments before the newest segment, newest first, limited to what fits into memory."""
    row: list[int] = []
    left = MANY * SMALL_BYTES
    for first in reversed([*found][:-1]):
        left -= found[first]
        if found[first] >= SMALL_BYTES or left < 0:
            break
        row.append(first)
    return row


def _read(store: Store, first: int) -> _Whole | None:
    """None if it can't be read, a line is broken, or it holds other records than its name and length say."""
    try:
        data = store.read(segment_path(first)).data
    except (SatchelError, FileNotFoundError):
        return None
    rows = data.split(b"\n")
    if rows.pop():
        return None
    follows, crc = "", ""
    for number, line in enumerate(parse_each(rows)):
        if (
            line is None
            or line.seq != first + number
            or isinstance(line.record, Fenced)
            or (number and line.prev != crc)
        ):
            return None
        follows, crc = follows or line.prev, line.crc
    return _Whole(first, rows, follows) if rows else None


def _replace(store: Store, whole: Sequence[_Whole]) -> None:
    """Changes nothing if the segments belong to several histories, because a person must see that."""
    first = whole[0].first
    rows = [*whole[0].rows]
    for segment in whole[1:]:
        at = segment.first - first
        if crc_of(rows[at - 1]) != segment.follows:
            return
        if at == len(rows):
            rows += segment.rows
        elif rows[at : at + len(segment.rows)] != segment.rows:  # else a merge was cut off, and they are there already
            return
    if len(rows) > len(whole[0].rows):
        store.replace(segment_path(first), b"\n".join([*rows, b""]))
    store.remove_many([segment_path(segment.first) for segment in whole[1:]])
