"""Merges the small segments that many short openings leave, so that a run started every minute keeps few files.

The merged segment replaces the first of them in one rename; then the others are removed. A crash in between leaves
segments whose records the merged one holds too. Reading counts each record once, and the next merge removes them.

The newest segment is left alone: it alone may be torn, and an opening needs little else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ..base import SatchelError, StorageFailed
from ..store import Store
from .naming import segment_path, sizes
from .records.line import BadLine, crc_of, parse
from .records.process import Fenced

MANY = 16
"""So many small segments in a row are merged."""

SMALL_BYTES = 1 << 20
"""A segment that has grown to this is not merged again, so that no record is copied for ever."""


class _Whole(NamedTuple):
    """A segment that was read, with every checksum right."""

    first: int
    rows: Sequence[bytes]
    follows: str  # the crc that its first record names as the one before it

    @property
    def due(self) -> int:
        """The record that would come next."""
        return self.first + len(self.rows)


def merge(store: Store) -> None:
    """Merge the newest row of small segments if it is long. Only for the owner of the workspace.

    The row begins after a segment that can't be read, is damaged, or was left by a bucket's journal: those stay as they
    are. So do all if the storage fails: a run that has ended well must not fail for want of order.
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
    """The longest row of small segments that ends before the newest segment, newest first, as far as memory holds it
    easily."""
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
    for number, row in enumerate(rows):
        try:
            line = parse(row)
        except BadLine:
            return None
        if line.seq != first + number or isinstance(line.record, Fenced) or (number and line.prev != crc):
            return None
        follows, crc = follows or line.prev, line.crc
    return _Whole(first, rows, follows) if rows else None


def _replace(store: Store, whole: Sequence[_Whole]) -> None:
    """Changes nothing if the segments are not of one history: that is for a person to see."""
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
