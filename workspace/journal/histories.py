"""Separate the histories in one folder: copies of a run were continued separately and put together again.

Satchel makes no such folder; a sync tool or a person does. `check_joints` is quick: it looks where the segments of a
disk's journal meet, also those that an opening need not read, because a newer checkpoint would cover the records of
another copy without a message. `woven` reads everything, to name the files that belong together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from ..base import Damaged, SatchelError
from ..formats import decoder
from ..store import Store
from .records.line import NO_CRC, Line, crc_of, parse_each, place_of
from .records.work import Fenced, Opened
from .segment import CHECKPOINTS, FOLDER, Misfit, checkpoint_position, segment_path, segments

_READ_LIMIT = 1 << 30

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
    pieces = _read(store)
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


def _read(store: Store) -> _Pieces:
    pieces = _Pieces()
    for path in map(segment_path, segments(store)):
        rows = store.read(path, limit=_READ_LIMIT).data.split(b"\n")[:-1]
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
                data = store.read(entry.path, limit=_READ_LIMIT).data
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
