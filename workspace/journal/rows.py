"""The rows of all segments, each record once, as far as they can be read. The reader refuses a damaged journal; this is
for those who show what is left of one, or write its rows elsewhere.

Several segments may hold the same records: in a bucket, after a move from there, and after a merge that was cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..base import SatchelError
from .records.line import BadLine, Line, LineReader
from .records.process import Fenced

_REPEATED = 1 << 18
"""More records than one segment holds, so none repeats older ones."""


class Row(NamedTuple):
    """A line of a segment; without a `line` it can't be read."""

    data: bytes
    line: Line | None


def once(segments: Iterable[bytes], *, first: int = 1) -> Iterator[Row]:
    """The rows of these segments from record `first` on. The last one of a segment may have no end."""
    crcs: dict[int, str] = {}  # of the newest records
    newest = 0
    for data in segments:
        reader, rows = LineReader(), [row for row in data.split(b"\n") if row]
        for row in rows:
            try:
                line = reader.parse(row)
            except (BadLine, SatchelError):
                yield Row(row, None)
                continue
            is_late = len(rows) == 1 and isinstance(line.record, Fenced)  # its process had lost the run: see reader.py
            if line.seq < first or (line.seq <= newest and (is_late or crcs.get(line.seq) == line.crc)):
                continue
            newest, crcs[line.seq] = line.seq, line.crc
            if len(crcs) > _REPEATED:
                del crcs[next(iter(crcs))]
            yield Row(row, line)
