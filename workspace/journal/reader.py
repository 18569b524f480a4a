"""Read the records after a position, and find out whether a crash explains a bad end.

`Chain` reads segments from the newest back, only as far as needed, and counts every record once. Each line names the
checksum of the line before it. A segment may begin with lines that earlier segments also hold, so in a bucket few of
the many small segments must be read. Where two segments meet, the records that both hold must be equal byte for byte,
and the next ones must name those before them. The same holds after a checkpoint. Anything else comes from copies of the
run that were continued separately and then put into one folder. Satchel makes no such folder; a sync tool or a person
does. `check_joints` finds that quickly: it looks where the segments of a disk's journal meet, also those that an
opening need not read, because a newer checkpoint would cover the records of another copy without a message. `woven`
reads everything, to name the files that belong together.

In a bucket not every object is what its name says. Names of rolled-up segments are free again, and a process that was
too late may have put its fence there. It is never the last by its name, because a roll-up keeps the last segment. Among
older ones it is recognised because nothing follows from it.

`once` is for those who show what is left of a damaged journal, or write its rows elsewhere: it refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from ..base import Damaged, SatchelError
from ..formats import decoder
from ..store import LARGE_LIMIT, Store
from .blobs import filled
from .line import FIRST, NO_CRC, BadLine, Before, Line, LineReader, crc_of, is_whole, parse_each, place_of
from .records import Fenced, Opened
from .segment import (
    CHECKPOINTS,
    FOLDER,
    Misfit,
    Segment,
    apart,
    checkpoint_position,
    first_kept,
    gone,
    segment_of,
    segment_path,
    segments,
    sizes,
)

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
        """The records behind `after`, oldest first."""
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
            data = self._store.read(path, limit=LARGE_LIMIT).data
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


Place = tuple[int, str]
"""Identifies a record: its seq and its crc."""

_END_BYTES = 64 << 10
"""How many bytes are read at the end of each segment. For most segments that is all."""


class History(Struct):
    """The history of one copy of the run, as far as its records exist."""

    crcs: dict[int, str]  # the crc of its records, by seq
    files: list[str] = field(default_factory=list)  # records of no other history
    begins: int = 0  # the first known difference from another one; 0: none
    ends: int = 0
    lacks: int = 0  # the last missing record that an opening needs; 0: it can be opened
    opened: str = ""  # where and when

    def __str__(self) -> str:
        opened = f", {self.opened}" if self.opened else ""
        lacks = f"; its records up to {self.lacks} are missing" if self.lacks else ""
        return f"{', '.join(self.files)} (up to record {self.ends}{opened}{lacks})"


class _Position(msgspec.Struct):
    """The part of a checkpoint that counts here, whether or not the rest of it can be read."""

    seq: int
    crc: str = NO_CRC
    opening: str = ""


class _Checkpoint(msgspec.Struct):
    moment: _Position


_checkpoint = decoder(_Checkpoint)


class _Pieces(Struct):
    """All pieces in the folder."""

    lines: dict[Place, Line] = field(default_factory=dict)
    files: dict[Place, list[str]] = field(default_factory=dict)
    fences: set[Place] = field(default_factory=set)  # alone in their files
    points: dict[str, _Position] = field(default_factory=dict)  # of the checkpoints, by path


def explained(store: Store, error: Misfit) -> Damaged:
    """The error to raise instead of `error`: it names the files that belong together, if there are two histories."""
    try:
        return woven(store) or error
    except (SatchelError, FileNotFoundError):  # a file has disappeared: its owner has rolled it up
        return error


def woven(store: Store) -> Damaged | None:
    """The error for a journal and checkpoints of several histories. Reads all of them."""
    found = histories(store)
    if not found:
        return None
    many = "two" if len(found) == 2 else str(len(found))
    return Damaged(
        f"{many} histories of this run are in one folder",
        path=FOLDER,
        why=f"copies of the run continued separately; they differ from record {found[0].begins} on",
        remedy=f"these belong together: {'; these: '.join(map(str, found))}. Move the files of all but one history to "
        "another folder, then run `satchel check`",
    )


def histories(store: Store) -> list[History]:
    """The histories that contradict each other, the longest first; none if there is only one."""
    pieces = _all_pieces(store)
    found = [_traced(pieces, end) for end in _ends(pieces)]
    found += _only_in_checkpoints(pieces, found)
    for one in found:
        for other in found:
            at = min((seq for seq, crc in one.crcs.items() if other.crcs.get(seq, crc) != crc), default=0)
            one.begins = min(filter(None, (one.begins, at)), default=0)
    found = [one for one in found if one.begins]
    for one in found:
        _name_files(one, [other for other in found if other is not one], pieces)
    return sorted(found, key=lambda each: -each.ends)


def _all_pieces(store: Store) -> _Pieces:
    pieces = _Pieces()
    for path in map(segment_path, segments(store)):
        rows = store.read(path, limit=LARGE_LIMIT).data.split(b"\n")[:-1]
        for line in parse_each(rows):
            if line is None:
                continue
            place = line.seq, line.crc
            pieces.lines[place] = line
            pieces.files.setdefault(place, []).append(path)
            if len(rows) == 1 and isinstance(line.record, Fenced):
                pieces.fences.add(place)
    for entry in store.list(CHECKPOINTS):
        if checkpoint_position(entry.path) is not None:
            with suppress(msgspec.MsgspecError, RecursionError, SatchelError, FileNotFoundError):
                data = store.read(entry.path, limit=LARGE_LIMIT).data
                pieces.points[entry.path] = _checkpoint.decode(data).moment
    return pieces


def _ends(pieces: _Pieces) -> Iterator[Place]:
    """The records without a successor. Not a fence of a process that was too late."""
    followed = {(line.seq - 1, line.prev) for line in pieces.lines.values()}
    known: dict[int, int] = {}
    for seq, _ in pieces.lines:
        known[seq] = known.get(seq, 0) + 1
    for place in pieces.lines:
        if place not in followed and not (place in pieces.fences and known[place[0]] > 1):
            yield place


def _traced(pieces: _Pieces, end: Place) -> History:
    """The history that ends there, back to its first record or to missing records."""
    found = History({}, ends=end[0])
    place = end
    while (line := pieces.lines.get(place)) is not None:
        found.crcs[line.seq] = line.crc
        place = line.seq - 1, line.prev
    if place[1] != NO_CRC:  # else it begins there
        found.crcs[place[0]] = place[1]
        is_saved = any(at.seq >= place[0] and found.crcs.get(at.seq) == at.crc for at in pieces.points.values())
        found.lacks = 0 if is_saved else place[0]
    return found


def _only_in_checkpoints(pieces: _Pieces, known: Sequence[History]) -> list[History]:
    """Histories that exist only in checkpoints, one for each opening."""
    found: dict[str, History] = {}
    for seq, crc, opening in ((at.seq, at.crc, at.opening) for at in pieces.points.values()):
        if crc != NO_CRC and all(one.crcs.get(seq) != crc for one in known):
            one = found.setdefault(opening, History({}))
            one.crcs[seq] = crc
            one.ends = one.lacks = max(one.ends, seq)
    return [*found.values()]


def _name_files(one: History, others: Sequence[History], pieces: _Pieces) -> None:
    """The files with the records that only this history has."""
    own = [
        (seq, crc)
        for seq, crc in sorted(one.crcs.items())
        if seq >= one.begins and all(other.crcs.get(seq) != crc for other in others)
    ]
    wanted = set(own)
    files = [file for place in own for file in pieces.files.get(place, ())]
    files += [path for path, at in pieces.points.items() if (at.seq, at.crc) in wanted]
    one.files = list(dict.fromkeys(files))
    for place in own:
        line = pieces.lines.get(place)
        if line is not None and isinstance(line.record, Opened):
            one.opened = f"opened {line.at} on {line.record.host}"
            return


class _Edges(NamedTuple):
    follows: str  # the crc that its first record names as the one before it; empty if that was not read
    due: int  # the record that would come next
    crc: str  # of its last record


def check_joints(store: Store) -> None:
    """Damaged, with the names of the files that belong together, if a segment does not follow from the one before. If
    the segments are long and both copies wrote the same number of records, only `woven` notices."""
    firsts = segments(store)
    ends = [_edges(store, segment_path(first)) for first in firsts]
    for due, older, newer in zip(firsts[1:], ends, ends[1:], strict=False):
        if older is None:
            continue
        if older.due != due or (newer and newer.follows and newer.follows != older.crc):
            error = woven(store)  # a merge that was cut off leaves segments that overlap, and are of one history
            if error is not None:
                raise error
            return


def _edges(store: Store, path: str) -> _Edges | None:
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
    return _Edges(first.prev if first else "", last.seq + 1, crc_of(rows[-1]))
