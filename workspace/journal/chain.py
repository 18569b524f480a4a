"""Read the segments that hold the records after a position, and check that they belong to one history.

Each line names the checksum of the line before it. A segment may begin with lines that earlier segments also hold, so
in a bucket few of the many small segments must be read. Segments are read from the newest back, only as far as needed,
and every record counts once.

Where two segments meet, the records that both hold must be equal byte for byte, and the next ones must name those
before them. The same holds after a checkpoint. Anything else comes from copies of the run that were continued
separately and then put into one folder.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..store import Store
from .naming import FOLDER, segment_path
from .records.line import NO_CRC, Before, Line, crc_of, is_whole
from .segment import Misfit, Segment, apart, segment_of

_READ_LIMIT = 1 << 30


class Chain:
    """The read records, from the newest back. A segment is ignored if newer ones do not follow from it and it does not
    reach them, such as a fence of a process that was too late. If no other segment reaches the newer ones, records are
    missing."""

    def __init__(self, store: Store, after: int, before: Before):
        """After record `after`, which has the content `before`, if it is known."""
        self._store, self._after, self._before = store, after, before
        self._parts: list[Segment] = []  # newest first
        self._rows: list[bytes] = []  # of them all, each record once
        self._begins = 0  # the first of these
        self._follows = ""  # what that names as the one before it
        self._left_out: list[Segment] = []

    @property
    def due(self) -> int:
        """The next record."""
        return self._begins + len(self._rows)

    @property
    def crc(self) -> str:
        """Of the last record."""
        return self._crc_at(self.due - 1) or self._before.crc or NO_CRC

    @property
    def lines(self) -> list[Line]:
        """Those behind `after`, oldest first."""
        lines: list[Line] = []
        due = self._after + 1
        for part in reversed(self._parts):
            lines += [line for line in part.lines if line.seq >= due]
            due = max(due, part.due)
        return lines

    @property
    def spoilt(self) -> int:
        """The first broken record among those that a checkpoint covers, as far as they were read; 0 without one."""
        known = self._rows[: max(0, self._after + 1 - self._begins)]
        crcs = (self._follows, *map(crc_of, known))
        rows = enumerate(zip(known, crcs, strict=False), self._begins)
        return next((seq for seq, (row, crc) in rows if not is_whole(row, crc)), 0)

    def read(self, firsts: Sequence[int]) -> Segment:
        """Read the segments that begin with the records `firsts`, as far as needed. Returns the newest one.

        Misfit if records are missing, belong to another history, or end before `after`; Damaged for a broken one.
        """
        for first in reversed(firsts):
            if self._parts and first >= self._begins:
                continue
            path = segment_path(first)
            data = self._store.read(path, limit=_READ_LIMIT).data
            self._add(segment_of(path, data, first, self._after, self._before, is_last=not self._parts))
            if self._is_complete:
                break
        self._check()
        return self._parts[0]

    @property
    def _is_complete(self) -> bool:
        """An empty segment does not tell what it follows, so the record of the checkpoint must be read."""
        return self._begins <= self._after + 1 and (bool(self._rows) or not self._before.crc)

    def _add(self, segment: Segment) -> None:
        if self._parts and segment.due < self._begins:
            self._left_out.append(segment)
            return
        if self._parts and not self._fits(segment):
            if segment.is_fence:
                self._left_out.append(segment)
                return
            if not self._newest_is_late(segment):
                raise apart(self._begins, self._parts[-1].path)
            self._parts, self._rows = [], []
        before = segment.rows[: self._begins - segment.begins] if self._parts else segment.rows
        beyond = segment.rows[len(before) + len(self._rows) :] if self._parts else ()
        self._rows = [*before, *self._rows, *beyond]
        self._begins, self._follows = segment.begins, segment.follows
        self._parts.append(segment)

    def _fits(self, older: Segment) -> bool:
        """Shared records are equal, and the newer ones follow from this segment."""
        at = self._begins - older.begins
        shared = min(len(older.rows) - at, len(self._rows))
        if at and self._follows and crc_of(older.rows[at - 1]) != self._follows:
            return False
        return [*older.rows[at : at + shared]] == self._rows[:shared]

    def _newest_is_late(self, older: Segment) -> bool:
        """Only a fence was read, and its place had been taken."""
        return len(self._parts) == 1 and self._parts[0].is_fence and older.due > self._begins

    def _check(self) -> None:
        if self._begins > self._after + 1:
            ends = [part.due for part in self._left_out if not part.is_fence and part.due < self._begins]
            first = max(ends, default=self._after + 1)
            raise Misfit(
                f"records {first} to {self._begins - 1} are missing before it",
                path=self._parts[-1].path,
                remedy="copy the whole folder journal/ from the place where this workspace came from",
            )
        if self.due <= self._after:
            raise Misfit(
                "the journal ends before the newest checkpoint",
                path=FOLDER,
                why=f"its last record is {self.due - 1}, the checkpoint is at {self._after}: they were not "
                "copied at the same time",
                remedy="copy the folder again, or move the newer files of checkpoints/ away",
            )
        known = self._crc_at(self._after)
        if self._before.crc and known and known != self._before.crc:
            raise apart(self._after + 1, self._parts[-1].path)
        for segment in self._left_out:
            skipped = max(0, self._begins - segment.begins)
            at = segment.begins + skipped - self._begins
            rows = [*segment.rows[skipped:]]
            if not segment.is_fence and rows != self._rows[at : at + len(rows)]:
                raise apart(segment.begins, segment.path)

    def _crc_at(self, seq: int) -> str:
        """The crc of a record, beginning with the one before the first; empty if it is not known."""
        if seq < self._begins:
            return self._follows
        return crc_of(self._rows[seq - self._begins])
