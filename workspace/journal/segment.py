"""The segments of the journal: their names and their content, and which old ones may be removed.

`journal/000000000017.jsonl` is the segment whose own first record is 17. `checkpoints/000000000017-NAME.json` is a
checkpoint of the state after record 17. A torn end of a segment is ignored if it belongs to the last group of the last
segment: a crash leaves that.

A place in the journal may be its new beginning if no segment before it holds a record after it, and no process that
once had the workspace can move a record from after it to before it. On a disk the lock rules such a process out. In a
bucket an earlier owner may be frozen, and roll its segments up when it wakes (segment_log.py): into an object behind
its own fence. So there the journal may begin at a fence, or in the owner's own part of it before what it still rolls
up.

First `journal/kept-000000004000.jsonl` is created. It says that the records up to 4000 are pruned: from then on every
reader ignores the segments before. And it holds those of them that are kept for ever: effects, questions and answers,
people's edits, the conversation, each as a line that needs no other line. The file with the highest number counts; a
crash may leave an earlier one whose lines it repeats. Then the segments are removed, except fences: their names must
stay taken, and only their records go.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from ..base import Damaged, SatchelError, UsageError
from ..store import LARGE_LIMIT, Entry, FileChanged, Store, Version
from .line import FIRST, BadLine, Before, Line, crc_of, encode, parse, parse_each, place_of
from .people import ApprovalAnswered, ApprovalAsked, ApprovalRevoked, Doubt, Edited, Resolved, Rewound
from .records import (
    NOTHING,
    Fenced,
    Message,
    Pruned,
    ScopeCommitted,
    ScopeFailed,
    StepCompleted,
    StepFailed,
    StepStarted,
)

FOLDER = "journal"
CHECKPOINTS = "checkpoints"
_NAME = re.compile(r"journal/([0-9]{12})\.jsonl")
_KEPT = re.compile(r"journal/kept-([0-9]{12})\.jsonl")
_CHECKPOINT = re.compile(r"checkpoints/([0-9]{12})(-[a-z0-9_-]+)?\.json")

FULL_BYTES = 4 << 20
"""A larger file is not written again; the next records begin another."""

_KEPT_RECORDS = (
    StepStarted,
    Doubt,
    Resolved,
    ApprovalAsked,
    ApprovalAnswered,
    ApprovalRevoked,
    Edited,
    Rewound,
    Pruned,
)

_FENCE_BYTES = 400
"""An object with no more is a fence, or as small."""


def new_opening() -> str:
    """A unique nonce for an opening."""
    return os.urandom(8).hex()


def segment_path(first_seq: int) -> str:
    return f"{FOLDER}/{first_seq:012d}.jsonl"


def kept_path(up_to: int) -> str:
    return f"{FOLDER}/kept-{up_to:012d}.jsonl"


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


def kept_lines(store: Store) -> list[Line]:
    """The pruned records that are kept for ever, oldest first. Damaged if one can't be read."""
    found: dict[int, Line] = {}
    for up_to in kept_files(store):
        path = kept_path(up_to)
        rows = [row for row in store.read(path, limit=LARGE_LIMIT).data.split(b"\n") if row]
        for number, line in enumerate(parse_each(rows), 1):
            if line is None:
                raise Damaged(
                    f"line {number} is damaged",
                    path=path,
                    remedy="restore the file from a backup: it has what is "
                    "kept for ever of pruned records. The run itself does not need it",
                )
            found[line.seq] = line
    return [found[seq] for seq in sorted(found)]


def chosen(lines: Sequence[Line]) -> list[Line]:
    """The records of some segments that are kept for ever."""
    said = {line.seq for line in conversation(lines)}
    return [_lean(line) for line in lines if line.seq in said or _is_kept(line)]


def _lean(line: Line) -> Line:
    """Without the whole state that a return to an earlier record has."""
    if not isinstance(line.record, Rewound):
        return line
    return replace(line, record=replace(line.record, agents=NOTHING, blob=""))


def _is_kept(line: Line) -> bool:
    if isinstance(line.record, StepCompleted | StepFailed):
        return line.record.effect
    return isinstance(line.record, _KEPT_RECORDS)


def conversation(lines: Iterable[Line]) -> Iterator[Line]:
    """What makes the conversation: the messages among them that count, because their scope has committed in the same
    group, and people's edits of it."""
    waiting: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        match line.record:
            case Message(agent=agent, scope=scope):
                waiting.setdefault((agent, scope), []).append(line)
            case ScopeCommitted(agent=agent, scope=scope):
                yield from (each for each in waiting.pop((agent, scope), ()) if each.commit == line.commit)
            case ScopeFailed(agent=agent, scope=scope):
                waiting.pop((agent, scope), None)
            case Edited(agent=agent, redone=redone, dropped=dropped, messages=edits):
                if edits:
                    yield line
                for scope in (*redone, *dropped):
                    waiting.pop((agent, scope), None)


def encode_kept(lines: Iterable[Line]) -> bytes:
    """Never empty: some storages and tools take an empty file for something else."""
    return b"".join(map(encode, lines)) or b"\n"


class Own(Struct, frozen=True):
    """The owner's part of the journal: from its first record to the segment that it may still change."""

    first: int
    last: int


class _Old(Struct, frozen=True):
    segment: Segment
    first: int
    version: Version
    size: int

    @property
    def fence(self) -> bytes:
        """Its line, if this is one."""
        at = self.first - self.segment.begins
        return self.segment.rows[at] + b"\n" if isinstance(self.segment.lines[at].record, Fenced) else b""


class OldSegments(Struct, frozen=True):
    """The records up to `up_to`, which may go."""

    up_to: int
    segments: Sequence[_Old]

    @property
    def paths(self) -> list[str]:
        """The segments that will be removed."""
        return [old.segment.path for old in self.segments if not old.fence]

    @property
    def size(self) -> int:
        """How many bytes go, as the storage counts."""
        return sum(old.size - len(old.fence) for old in self.segments)

    @property
    def lines(self) -> list[Line]:
        """Their records, each once."""
        found = {line.seq: line for old in self.segments for line in old.segment.lines if not old.segment.is_fence}
        return [found[seq] for seq in sorted(found)]


def old_bytes(store: Store, up_to: int) -> int:
    """How many bytes the segments have that end at record `up_to` or before, by names and sizes."""
    found = [*sizes(store).items()]
    return sum(size for (_, size), (following, _) in pairwise(found) if following <= up_to + 1)


def old_segments(store: Store, up_to: int, own: Own | None, most: int) -> OldSegments | None:
    """The oldest segments without a record after `up_to`, read and checked: about `most` bytes, but at least one. None
    if there are none, or if one is damaged: then all stay.

    `own`: the part of the owner that asks. Without it none is the owner's.
    """
    found = sizes(store)
    read: list[_Old] = []
    due, last = 0, 0  # the record after all those read; how many of them may go
    taken = 0
    for first, following in pairwise(found):
        if following > up_to + 1 or (own is not None and following > own.last) or (last and taken > most):
            break
        old = _read_old(store, first, found[first])
        if old is None:
            break
        read.append(old)
        due, taken = max(due, old.segment.due), taken + old.size
        if due <= following and _may_begin(store, following, found[following], own):
            last = len(read)
    return OldSegments([*found][last] - 1, read[:last]) if last else None


def left_behind(store: Store) -> OldSegments | None:
    """The pruned segments that an interrupted removal has left."""
    least = first_kept(store)
    found = [
        old
        for first, size in sizes(store, pruned=True).items()
        if first < least and (store.abilities.append or size > _FENCE_BYTES) and (old := _read_old(store, first, size))
    ]
    return OldSegments(least - 1, found) if found else None


def _read_old(store: Store, first: int, size: int) -> _Old | None:
    path = segment_path(first)
    try:
        content = store.read(path, limit=LARGE_LIMIT)
        segment = segment_of(path, content.data, first, 0, FIRST, is_last=False)
    except (SatchelError, FileNotFoundError):
        return None
    return _Old(segment, first, content.version, size) if segment.lines and segment.due > first else None


def _may_begin(store: Store, first: int, size: int, own: Own | None) -> bool:
    """Whether no other process can move records from there on to before it."""
    if store.abilities.append or (own is not None and first >= own.first):
        return True
    old = _read_old(store, first, size)
    return old is not None and bool(old.fence)


def kept_of(old: OldSegments) -> bytes:
    """The file with the records of old segments that are kept for ever."""
    return encode_kept(chosen(old.lines))


def roll_kept(store: Store, old: OldSegments) -> None:
    """From here on the journal begins after them, for every reader. What is kept for ever of them is durable."""
    earlier = kept_files(store)
    data = kept_of(old)
    if earlier:
        before = store.read(kept_path(earlier[-1]), limit=LARGE_LIMIT).data
        if len(before) < FULL_BYTES:
            data = before + data
    store.create(kept_path(old.up_to), data)


def remove_old(store: Store, old: OldSegments) -> None:
    """Remove them, and files of kept records that a later one repeats. What another process has changed or removed
    meanwhile stays as it is: no reader looks at it."""
    for each in old.segments:
        with suppress(FileChanged, FileNotFoundError):
            if not each.fence:
                store.remove(each.segment.path, if_version=each.version)
            elif len(each.fence) < each.size:
                store.replace(each.segment.path, each.fence, if_version=each.version)
    for path in _repeated(store):
        store.remove(path)


def _repeated(store: Store) -> list[str]:
    """The files of kept records whose lines the last one repeats."""
    last = store.read(kept_path(kept_files(store)[-1]), limit=LARGE_LIMIT).data
    known = {entry.path: entry.size for entry in store.list(FOLDER)}
    earlier = [path for path in map(kept_path, kept_files(store)[:-1]) if known[path] < FULL_BYTES]
    return [path for path in earlier if last.startswith(store.read(path, limit=LARGE_LIMIT).data)]


class Gone(Damaged, UsageError):
    """Retention has removed records. Nothing is broken, but a reader has to look again: the files that it had in mind
    may be older than the removal."""


def gone(seq: int, kept: int) -> Gone:
    """The error that record `seq` is not in the journal, nor what the state at it would be made from: retention has
    removed it, or the run is a fork. `kept`: the first record that is kept."""
    return Gone(
        f"record {seq:,} is gone",
        why=f"the journal is kept from record {kept:,} on (`keep:` in workspace.yaml, or the run is a fork from there)",
    )
