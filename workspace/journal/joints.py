"""A glance at where the segments of a disk's journal meet, those included that an opening has no need to read.

A sync tool may have put a segment of another copy of the run among them. What such a copy did would be left out
without a word, since a newer checkpoint covers it.
"""

from __future__ import annotations

from typing import NamedTuple

from ..base import SatchelError
from ..store import Store
from .histories import woven
from .naming import segment_path, segments
from .records.line import BadLine, Line, parse

_END_BYTES = 64 << 10
"""So much is read of the end of each segment: of most it is all."""


class _Ends(NamedTuple):
    first: Line | None  # None if it was not read
    last: Line


def check_joints(store: Store) -> None:
    """Damaged, naming the files that belong together, if segments do not follow from one another. Where the two
    segments that meet are long and equally many records were written to both copies, only `woven` notices."""
    firsts = segments(store)
    ends = [_ends(store, segment_path(first)) for first in firsts]
    for due, older, newer in zip(firsts[1:], ends, ends[1:], strict=False):
        if older is None:
            continue
        is_next = older.last.seq + 1 == due
        if not is_next or (newer and newer.first and newer.first.prev != older.last.crc):
            error = woven(store)  # a merge that was cut off leaves segments that overlap, and are of one history
            if error is not None:
                raise error
            return


def _ends(store: Store, path: str) -> _Ends | None:
    """None for a segment that can't be read, or whose last line is long or broken."""
    try:
        data = store.tail(path, _END_BYTES)
        rows = data.splitlines()
        return _Ends(parse(rows[0]) if len(data) < _END_BYTES else None, parse(rows[-1]))
    except (BadLine, IndexError, FileNotFoundError, SatchelError):
        return None
