"""A segment of the journal: its name, and its content. A torn end is ignored if it belongs to the last group of the
last segment: a crash leaves that.

`journal/000000000017.jsonl` is the segment whose own first record is 17. `checkpoints/000000000017-NAME.json` is a
checkpoint of the state after record 17. `journal/kept-000000000016.jsonl` says that the records up to 16 are pruned
(pruning.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct

from ..base import Damaged
from ..store import Entry, Store
from .line import FIRST, BadLine, Before, Line, crc_of, parse, place_of
from .records import Fenced

FOLDER = "journal"
CHECKPOINTS = "checkpoints"
_NAME = re.compile(r"journal/([0-9]{12})\.jsonl")
_KEPT = re.compile(r"journal/kept-([0-9]{12})\.jsonl")
_CHECKPOINT = re.compile(r"checkpoints/([0-9]{12})(-[a-z0-9_-]+)?\.json")


def new_opening() -> str:
    """A unique nonce for an opening."""
    return os.urandom(8).hex()


def segment_path(first_seq: int) -> str:
    return f"{FOLDER}/{first_seq:012d}.jsonl"


def first_of(path: str) -> int:
    """The record in the name of a segment; 0 if the name is none."""
    match = _NAME.fullmatch(path)
    return int(match[1]) if match else 0


def segments(store: Store) -> list[int]:
    """The segments by the seq of their first record, in order."""
    return [*sizes(store)]


def sizes(store: Store, *, pruned: bool = False) -> dict[int, int]:
    """The segments with their sizes in bytes, from one listing. With `pruned`, also those whose records are pruned, as
    far as they are still there."""
    entries = [*store.list(FOLDER)]
    least = 1 if pruned else _first_kept(entries)
    found = ((first_of(entry.path), entry.size) for entry in entries)
    return dict(sorted((first, size) for first, size in found if first >= least))


def first_kept(store: Store) -> int:
    """The first record that is not pruned. 1 if none is."""
    return _first_kept(store.list(FOLDER))


def _first_kept(entries: Iterable[Entry]) -> int:
    return max((int(match[1]) for entry in entries if (match := _KEPT.fullmatch(entry.path))), default=0) + 1


def kept_files(store: Store) -> list[int]:
    """The last pruned record of each file of kept records, in order."""
    return sorted(int(match[1]) for entry in store.list(FOLDER) if (match := _KEPT.fullmatch(entry.path)))


def checkpoint_position(path: str) -> int | None:
    """The record of a checkpoint, by its name; None if it is no checkpoint."""
    match = _CHECKPOINT.fullmatch(path)
    return int(match[1]) if match else None


class Misfit(Damaged):
    """Pieces that do not belong together: records are missing, or belong to another history."""


class Segment(Struct, frozen=True):
    path: str
    rows: Sequence[bytes]  # its whole lines
    lines: Sequence[Line]  # those that are needed
    begins: int  # with this record
    follows: str  # the crc that its first record names as the one before it; empty if that is not known
    good: bytes
    torn: str | None
    is_fence: bool  # and nothing else

    @property
    def due(self) -> int:
        """The next record."""
        return self.begins + len(self.rows)


def segment_of(path: str, data: bytes, first: int, after: int, before: Before, *, is_last: bool) -> Segment:
    """The segment `path`, whose own first record is `first`. Lines up to record `after` are not parsed, if that
    is in its place and its content `before` is known. Damaged for what a crash does not leave."""
    rows = data.split(b"\n")
    head: Line | None = None
    with suppress(BadLine):
        head = parse(rows[0])
    begins = _repeated_from(rows, head, first)
    known = _known(rows, begins, after) if before.at else 0
    newest: Before | Line = before._replace(crc=crc_of(rows[known - 1])) if known else FIRST
    lines: list[Line] = []
    reason = ""
    for number, row in enumerate(rows[known:-1], known):
        try:
            line = parse(row, newest)
        except BadLine as error:
            reason = str(error)
            break
        if line.seq != begins + number:
            reason = f"it says it is record {line.seq}, but record {begins + number} belongs here"
            break
        if number and line.prev != newest.crc:
            raise apart(line.seq, path)
        lines.append(line)
        newest = line
    whole = rows[: known + len(lines)]
    is_fence = head is not None and len(whole) == 1 and isinstance(head.record, Fenced)
    follows = head.prev if whole and head is not None else ""
    if not reason and not rows[-1]:
        return Segment(path, whole, lines, begins, follows, data, None, is_fence)
    reason = reason or "it has no line end"
    at, due = len(whole), begins + len(whole)
    if not is_last or any(group > due for group in _groups(rows, at + 1)):
        raise Damaged(
            f"line {at + 1} is damaged",
            path=path,
            why=f"{reason}, and valid records follow it",
            remedy="a crash does not cause this: restore the file from a backup; `satchel log` shows what can still "
            f"be read, and `satchel recover --truncate-at {due - 1}` (`recover(truncate_at={due - 1})` in Python) goes "
            "back to the record before it",
        )
    good = data[: sum(len(row) + 1 for row in whole)]
    torn = f"{len(data) - len(good)} bytes at the end of {path} (record {due}: {reason})"
    return Segment(path, whole, lines, begins, follows, good, torn, is_fence)


def apart(seq: int, path: str = FOLDER) -> Misfit:
    """The error that record `seq` does not belong to the history of the rest."""
    return Misfit(
        f"record {seq} does not fit the records before it",
        path=path,
        why="they belong to different histories of this run",
        remedy="restore the folders journal/ and checkpoints/ from the same copy",
    )


def _repeated_from(rows: Sequence[bytes], head: Line | None, first: int) -> int:
    """The first record of a segment. One that begins before its name must reach the record in its name."""
    if head is not None and head.seq < first <= head.seq + len(rows) - 1:
        at = first - head.seq
        named = place_of(rows[at], crc_of(rows[at - 1]))
        if named is not None and named.seq == first:
            return head.seq
    return first


def _known(rows: Sequence[bytes], begins: int, after: int) -> int:
    """How many rows need not be read because of a checkpoint at `after`: an opening reads the tail, not the history."""
    count = after + 1 - begins
    if 0 < count < len(rows):  # the last row has no end
        place = place_of(rows[count - 1], crc_of(rows[count - 2]) if count > 1 else "")
        if place is not None and place.seq == after:
            return count
    return 0  # then all are read, to tell what is wrong


def _groups(rows: Sequence[bytes], first: int) -> Iterator[int]:
    """The groups of whole lines among `rows`, from number `first` on. A group is written only when those before it are
    durable."""
    for at, row in enumerate(rows[first:], first):
        place = place_of(row, crc_of(rows[at - 1]))
        if place is not None:
            yield place.group
