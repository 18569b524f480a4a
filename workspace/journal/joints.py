"""A quick check where the segments of a disk's journal meet, including those that an opening need not read.

A sync tool may have put a segment of another copy of the run among them. Its records would be ignored without a
message, since a newer checkpoint covers them.
"""

from __future__ import annotations

from typing import NamedTuple

from ..base import SatchelError
from ..store import Store
from .histories import woven
from .naming import segment_path, segments
from .records.line import crc_of, place_of

_END_BYTES = 64 << 10
"""How many bytes are read at the end of each segment. For most segments that is all."""


class _Ends(NamedTuple):
    follows: str  # the crc that its first record names as the one before it; empty if that was not read
    due: int  # the record that would come next
    crc: str  # of its last record


def check_joints(store: Store) -> None:
    """Damaged, with the names of the files that belong together, if a segment does not follow from the one before. If
    the segments are long and both copies wrote the same number of records, only `woven` notices."""
    firsts = segments(store)
    ends = [_ends(store, segment_path(first)) for first in firsts]
    for due, older, newer in zip(firsts[1:], ends, ends[1:], strict=False):
        if older is None:
            continue
        if older.due != due or (newer and newer.follows and newer.follows != older.crc):
            error = woven(store)  # a merge that was cut off leaves segments that overlap, and are of one history
            if error is not None:
                raise error
            return


def _ends(store: Store, path: str) -> _Ends | None:
    """None for a segment that can't be read, or whose last line is long or broken."""
    try:
        data = store.tail(path, _END_BYTES)
    except (FileNotFoundError, SatchelError):
        return None
    *rows, rest = data.split(b"\n")
    last = place_of(rows[-1], crc_of(rows[-2]) if len(rows) > 1 else "") if rows and not rest else None
    if last is None:
        return None
    first = place_of(rows[0], "") if len(data) < _END_BYTES else None
    return _Ends(first.prev if first else "", last.seq + 1, crc_of(rows[-1]))
