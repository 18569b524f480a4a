"""Read the records after a position, and find out whether a crash explains a bad end.

`Chain` reads segments from the newest back, only as far as needed, and counts every record once. Each line names the
checksum of the line before it. A segment may begin with lines that earlier segments also hold, so in a bucket few of
the many small segments must be read. Where two segments meet, the records that both hold must be equal byte for byte,
and the next ones must name those before them. The same holds after a checkpoint. Anything else comes from copies of the
run that were continued separately and then put into one folder; histories.py names the files that belong together.

In a bucket not every object is what its name says. Names of rolled-up segments are free again, and a process that was
too late may have put its fence there. It is never the last by its name, because a roll-up keeps the last segment. Among
older ones it is recognised because nothing follows from it.

`once` is for those who show what is left of a damaged journal, or write its rows elsewhere: it refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from ..base import Damaged, SatchelError
from ..store import Store
from .blobs import filled
from .pruning import gone
from .records.line import FIRST, NO_CRC, BadLine, Before, Line, LineReader, crc_of, is_whole
from .records.work import Fenced
from .segment import FOLDER, Misfit, Segment, apart, first_kept, segment_of, segment_path, segments, sizes

_READ_LIMIT = 1 << 30

_TRIES = 8

_REPEATED = 1 << 18
"""More records than one segment holds, so none repeats older ones."""


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


class Tail(Struct, frozen=True):
    """The records of the journal after some position."""

    lines: Sequence[Line]
    next_seq: int
    crc: str = NO_CRC  # of the record before `next_seq`
    last_segment: str | None = None
    good: bytes = b""  # the part of the last segment that was written whole
    torn: str | None = None  # what was cut off from it, for the report
    spoilt: int = 0  # a broken record up to that position, if one was found: nothing depends on it


def read(store: Store, *, after: int, before: Before = FIRST) -> Tail:
    """The records after position `after` (0: all). `before` is the content of record `after`, if it is known: a record
    with another crc belongs to another history. Changes nothing.

    Damaged if a record is missing, broken where a crash can't have broken it, or from another history.
    """
    for _ in range(_TRIES):
        try:
            return _read(store, after, before)
        except FileNotFoundError:  # its owner has rolled segments up meanwhile
            store.refresh()
            store.fetch(expected(store, after=after))  # at once, before the owner does it again
        except Damaged as error:
            if not store.abilities.remote or not _has_changed(store):
                from .histories import explained  # an undamaged journal needs no explanation

                raise (explained(store, error) if isinstance(error, Misfit) else error) from None
    return _read(store, after, before)


def expected(store: Store, *, after: int) -> list[str]:
    """The segments that reading will probably need, according to names and sizes: a segment followed by a larger one is
    probably repeated there."""
    found: list[str] = []
    newer = 0
    for first, size in reversed(sizes(store).items()):
        if size >= newer:
            found.append(segment_path(first))
        if first <= after + 1:
            break
        newer = size
    return found


def _has_changed(store: Store) -> bool:
    """Whether a new listing differs: one that was made during a roll-up may show neither the segments nor the object
    with their records."""
    before = [*store.list(FOLDER)]
    store.refresh()
    return [*store.list(FOLDER)] != before


def _read(store: Store, after: int, before: Before) -> Tail:
    firsts = segments(store)
    if after + 1 < (kept := first_kept(store)):
        raise gone(after + 1, kept)
    if not firsts:
        if after:
            raise Damaged(
                "the journal is missing",
                path=FOLDER,
                why=f"the newest checkpoint is at record {after}",
                remedy="copy the folder journal/ from the place where this workspace came from",
            )
        return Tail([], 1)
    chain = Chain(store, after, before)
    last = chain.read(firsts)
    lines = [filled(store, line) for line in chain.lines]
    return Tail(lines, chain.due, chain.crc, last.path, last.good, last.torn, chain.spoilt)


def mend(store: Store, tail: Tail) -> None:
    """Make the result of `read` durable, so that it can be trusted.

    What was read may have been only in the page cache, even after a failed fsync. So the last segment is not synced but
    written again. Where files are written whole or not at all, it can only be torn if it was copied torn.
    """
    if tail.last_segment is None or (tail.good and not tail.lines and not tail.torn):
        return  # a checkpoint that covers all of it is only written when it is durable
    if not store.abilities.append and not tail.torn:
        return
    if tail.good:
        store.replace(tail.last_segment, tail.good)
    else:
        store.remove(tail.last_segment)


class SegmentRow(NamedTuple):
    """A line of a segment; without a `line` it can't be read."""

    data: bytes
    line: Line | None


def once(segments: Iterable[bytes], *, first: int = 1) -> Iterator[SegmentRow]:
    """The rows of these segments from record `first` on. The last one of a segment may have no end."""
    crcs: dict[int, str] = {}  # of the newest records
    newest = 0
    for data in segments:
        reader, rows = LineReader(), [row for row in data.split(b"\n") if row]
        for row in rows:
            try:
                line = reader.parse(row)
            except (BadLine, SatchelError):
                yield SegmentRow(row, None)
                continue
            is_late = len(rows) == 1 and isinstance(line.record, Fenced)  # its process had lost the run
            if line.seq < first or (line.seq <= newest and (is_late or crcs.get(line.seq) == line.crc)):
                continue
            newest, crcs[line.seq] = line.seq, line.crc
            if len(crcs) > _REPEATED:
                del crcs[next(iter(crcs))]
            yield SegmentRow(row, line)
