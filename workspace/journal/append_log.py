"""Where groups go if files can grow: to the end of the current segment.

A run that is started every minute leaves many small segments. At a stop they are merged: the merged segment replaces
the first of them in one rename; then the others are removed. A crash in between leaves segments whose records the
merged one holds too. Readers count each record once, and the next merge removes them. The newest segment is not merged:
only it may be torn, and an opening needs little else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ..base import Damaged, SatchelError, StorageFailed
from ..store import AppendFile, Store
from .records.line import Line, crc_of, parse_each
from .records.work import Fenced
from .segment import segment_path, sizes

MANY = 16
"""A row of so many small segments is merged."""

SMALL_BYTES = 1 << 20
"""A segment of this size is not merged again, so that records are not copied for ever."""

SEGMENT_BYTES = 1 << 20
"""After this size a new segment begins."""


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


class AppendedSegments:
    """The segments of one opening."""

    growing = 0

    def __init__(self, store: Store):
        self._store = store
        self._log: AppendFile | None = None
        self._log_bytes = 0

    @property
    def is_full(self) -> bool:
        """The next group begins a segment."""
        return self._log is None or self._log_bytes >= SEGMENT_BYTES

    def write(self, lines: Sequence[Line], data: bytes) -> None:
        """One write, one sync."""
        try:
            if self._log is None or self.is_full:
                self.close()
                self._log, self._log_bytes = self._store.create_log(segment_path(lines[0].seq), data), 0
            else:
                self._log.append(data)
            self._log_bytes += len(data)
        except FileExistsError as error:
            raise Damaged(
                "a file or folder is in the place of the next records",
                path=segment_path(lines[0].seq),
                why="another process wrote it, or a person made a folder with this name",
                remedy="make sure that no other process runs this workspace, move this one away, and run again",
            ) from error

    def roll_up(self) -> None:
        """A segment is one file already; those of earlier openings may be many."""
        merge(self._store)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
