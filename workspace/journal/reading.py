"""Reads the journal: finds what is good, cuts off a torn tail, and refuses damage that no crash explains.

A segment's lines follow from one another. It may begin with lines that segments before it hold too, and may hold what
those behind it repeat: in a bucket many small segments are read as few that way. So they are read from the newest
back, only as far as they are needed, and every record counts once.

In a bucket not every object is what its name promises. Where segments were rolled up their names are free again, and a
fence may stand there of somebody who looked before and was too late. It is never the last by its name, because a
roll-up leaves the last segment where it is; among older ones it is told by the epoch of what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import Damaged
from ..record import BadLine, Fenced, Line, parse
from ..store import Store
from .naming import FOLDER, segment_path, segments, sizes

_READ_LIMIT = 1 << 30
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Tail:
    """What the journal holds after some position."""

    lines: Sequence[Line]
    next_seq: int
    last_segment: str | None = None
    good: bytes = b""  # the part of the last segment that was written whole
    torn: str | None = None  # what was cut off from it, for the report


@dataclass(frozen=True, slots=True)
class _Segment:
    path: str
    lines: list[Line]  # those that are needed
    begins: int  # with this record
    due: int  # the record that would come next
    good: bytes
    torn: str | None
    fence: int = 0  # the epoch that it is the fence of, if it is nothing else


def read(store: Store, *, after: int) -> Tail:
    """The records behind position `after` (0: all). Changes nothing.

    Damaged if a record is missing, or broken where a crash can't have broken it.
    """
    for _ in range(_TRIES):
        try:
            return _read(store, after)
        except FileNotFoundError:  # its owner has rolled segments up meanwhile
            store.refresh()
        except Damaged:
            if not store.abilities.remote or not _has_changed(store):
                raise
    return _read(store, after)


def expected(store: Store, *, after: int) -> list[str]:
    """The segments that reading will probably ask for, as far as names and sizes tell: one that is followed by a larger
    one is likely to be repeated there."""
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
    """Whether a new listing tells something else: one that was taken while segments were rolled up may show neither
    them nor what they were rolled up into."""
    before = [*store.list(FOLDER)]
    store.refresh()
    return [*store.list(FOLDER)] != before


def _read(store: Store, after: int) -> Tail:
    firsts = segments(store)
    if not firsts:
        if after:
            raise Damaged(
                "the journal is gone", path=FOLDER, why=f"the newest checkpoint stands at record {after}",
                remedy="copy the folder journal/ back from where this workspace came from",
            )  # fmt: skip
        return Tail([], 1)
    chain = _chain(store, firsts, after)
    lines: list[Line] = []
    due = chain[-1].begins
    for segment in reversed(chain):
        needed_from = max(due, after + 1)
        lines += [line for line in segment.lines if line.seq >= needed_from]
        due = max(due, segment.due)
    if due <= after:
        raise Damaged(
            "the journal ends before the newest checkpoint", path=FOLDER,
            why=f"its last record is {due - 1}, the checkpoint stands at {after}: they are not of one moment",
            remedy="copy the folder anew, or move the newer files of checkpoints/ away",
        )  # fmt: skip
    last = chain[0]
    return Tail(lines, due, last.path, last.good, last.torn)


def _chain(store: Store, firsts: Sequence[int], after: int) -> list[_Segment]:
    """The segments that hold all records behind `after`, the newest first.

    One that does not reach up to those behind it is left out, and so is a fence that records of an earlier epoch
    follow: it is of somebody who was too late. If nothing else reaches them, records are missing.
    """
    chain: list[_Segment] = []
    begins, gap_from = 0, 0
    for first in reversed(firsts):
        if chain and first >= begins:
            continue
        path = segment_path(first)
        segment = _read_segment(path, store.read(path, limit=_READ_LIMIT).data, first, after, is_last=not chain)
        if not chain or (segment.due >= begins and not _is_late(segment, chain[-1])):
            chain.append(segment)
            gap_from = 0
        elif not segment.fence:
            gap_from = max(gap_from, segment.due)
        begins = chain[-1].begins
        if begins <= after + 1:
            return chain
    raise _gap(chain[-1].path, gap_from or after + 1, begins)


def _is_late(segment: _Segment, newer: _Segment) -> bool:
    return bool(newer.lines) and segment.fence > newer.lines[0].epoch


def _read_segment(path: str, data: bytes, first: int, after: int, *, is_last: bool) -> _Segment:
    """The records of a segment, from `after` on where they are needed."""
    rows = data.split(b"\n")
    begins = _repeated_from(rows, first)
    known = _known(rows, begins, after)
    lines: list[Line] = []
    due = begins + known
    for row in rows[known:-1]:
        try:
            line = parse(row)
        except BadLine as error:
            reason = str(error)
            break
        if line.seq != due:
            reason = f"it says it is record {line.seq}, and {due} belongs here"
            break
        lines.append(line)
        due += 1
    else:
        if not rows[-1]:
            return _Segment(path, lines, begins, due, data, None, _fence(rows))
        reason = "it has no end"
    at = due - begins
    if not is_last or any(group > due for group in _later_groups(rows[at + 1 :])):
        raise Damaged(
            f"line {at + 1} is broken", path=path, why=f"{reason}, and whole records follow it",
            remedy="this is not what a crash leaves: take the file from a backup, "
            "or run `satchel log` to see what can still be read",
        )  # fmt: skip
    good = sum(len(row) + 1 for row in rows[:at])
    torn = f"{len(data) - good} bytes at the end of {path} (record {due}: {reason})"
    return _Segment(path, lines, begins, due, data[:good], torn)


def _fence(rows: Sequence[bytes]) -> int:
    """The epoch that these rows, all but the last, are the fence of; 0 if they are anything else."""
    try:
        line = parse(rows[0])
    except BadLine:
        return 0
    return line.epoch if len(rows) == 2 and isinstance(line.record, Fenced) else 0


def _repeated_from(rows: Sequence[bytes], first: int) -> int:
    """The record that a segment begins with. One that begins before its name must reach the record it is named for."""
    try:
        begins = parse(rows[0]).seq
        if begins < first and parse(rows[first - begins]).seq == first:
            return begins
    except (BadLine, IndexError):
        pass
    return first


def _known(rows: Sequence[bytes], begins: int, after: int) -> int:
    """How many rows a checkpoint at `after` has made needless to read: opening reads the tail, not the history."""
    count = after + 1 - begins
    try:
        if 0 < count < len(rows) and parse(rows[count - 1]).seq == after:  # the last row has no end
            return count
    except BadLine:
        pass
    return 0  # then all are read, to tell what is wrong


def _later_groups(rows: Sequence[bytes]) -> list[int]:
    """The groups that whole lines among `rows` belong to: a group is written only when those before it are durable."""
    groups = []
    for row in rows:
        try:
            groups.append(parse(row).commit)
        except BadLine:
            continue
    return groups


def mend(store: Store, tail: Tail) -> None:
    """Make what `read` has found durable, so that it can be trusted.

    What was read may only have been in the page cache, even after an fsync that failed; so the last segment is not
    synced but written anew. Where files are written whole or not at all, it is only torn if it was copied torn.
    """
    if tail.last_segment is None or (tail.good and not tail.lines and not tail.torn):
        return  # a checkpoint that covers all of it was written only when it was durable
    if not store.abilities.append and not tail.torn:
        return
    if tail.good:
        store.replace(tail.last_segment, tail.good)
    else:
        store.remove(tail.last_segment)


def _gap(path: str, expected: int, found: int) -> Damaged:
    return Damaged(
        f"records {expected} to {found - 1} are missing before it", path=path,
        remedy="copy the folder journal/ whole, from where this workspace came from",
    )  # fmt: skip
