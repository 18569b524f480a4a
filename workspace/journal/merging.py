"""Merges the small segments that many short openings leave, so that a run started every minute keeps few files.

The merged segment replaces the first of them in one rename; then the others are removed. A crash in between leaves
segments whose records the merged one holds too. Reading counts each record once, and the next merge removes them.

The newest segment is left alone: it alone may be torn, and an opening needs little else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..record import BadLine, Fenced, parse
from ..store import Store
from .naming import segment_path, sizes

MANY = 16
"""So many small segments in a row are merged."""

SMALL_BYTES = 1 << 20
"""A segment that has grown to this is not merged again, so each record is copied a few times at most."""


class _Whole(NamedTuple):
    """A segment that was read, with every checksum right."""

    first: int
    due: int  # the record that would come next
    data: bytes


def merge(store: Store) -> None:
    """Merge the newest row of small segments if it is long. Only for the owner of the workspace.

    Stops at a segment that is damaged, or that a bucket's journal has left: those stay as they are.
    """
    row = _small(sizes(store))
    if len(row) < MANY:
        return
    whole: list[_Whole] = []
    for first in row:
        segment = _read(store, first)
        if segment is None or (whole and segment.first > whole[-1].due):
            break
        whole.append(segment)
    if len(whole) > 1:
        _replace(store, whole)


def _small(found: dict[int, int]) -> Sequence[int]:
    """The longest row of small segments that ends before the newest segment, oldest first."""
    row: list[int] = []
    for first in reversed([*found][:-1]):
        if found[first] >= SMALL_BYTES:
            break
        row.append(first)
    return row[::-1]


def _read(store: Store, first: int) -> _Whole | None:
    """None if a line is broken, or the segment holds other records than its name and length say."""
    data = store.read(segment_path(first)).data
    rows = data.split(b"\n")
    if rows.pop():
        return None
    for number, row in enumerate(rows):
        try:
            line = parse(row)
        except BadLine:
            return None
        if line.seq != first + number or isinstance(line.record, Fenced):
            return None
    return _Whole(first, first + len(rows), data)


def _replace(store: Store, whole: Sequence[_Whole]) -> None:
    parts, due = [whole[0].data], whole[0].due
    for segment in whole[1:]:
        if segment.first == due:  # else a merge was cut off, and the records are there already
            parts.append(segment.data)
            due = segment.due
        elif segment.due > due:
            return  # two histories overlap: nothing of that is to be mended here
    if len(parts) > 1:
        store.replace(segment_path(whole[0].first), b"".join(parts))
    store.remove_many([segment_path(segment.first) for segment in whole[1:]])
