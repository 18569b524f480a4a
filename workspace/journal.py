"""The journal: what happened, in segments of records, written in groups that are durable before anyone is told.

    reading   `read` finds what is good, cuts off a torn tail, and refuses damage that no crash explains
    mending   `mend` makes what was read durable before anything is built on it
    writing   `Journal` collects records and writes all that wait with one write and one sync

An invariant holds it together: when a segment exists, everything in those before it is durable. So only the last one
can be torn, and only in its last group.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .errors import AgentError, Damaged, SatchelError, StorageFailed
from .record import AnyRecord, BadLine, Line, encode, now, parse
from .store import Log, Store

FOLDER = "journal"
SEGMENT_BYTES = 4 << 20
RECORD_BYTES = 16 << 20
_READ_LIMIT = 1 << 30
_NAME = re.compile(r"journal/([0-9]{12})\.jsonl")


def segment_path(first_seq: int) -> str:
    return f"{FOLDER}/{first_seq:012d}.jsonl"


def segments(store: Store) -> list[int]:
    """The segments there are, by the seq of their first record, in order."""
    return sorted(int(match[1]) for entry in store.list(FOLDER) if (match := _NAME.fullmatch(entry.path)))


@dataclass(frozen=True, slots=True)
class Tail:
    """What the journal holds after some position."""

    lines: Sequence[Line]
    next_seq: int
    last_segment: str | None = None
    good: bytes = b""  # the part of the last segment that was written whole
    torn: str | None = None  # what was cut off from it, for the report


def read(store: Store, *, after: int) -> Tail:
    """The records behind position `after` (0: all). Changes nothing.

    Damaged if a record is missing, or broken where a crash can't have broken it.
    """
    firsts = segments(store)
    if not firsts:
        if after:
            raise Damaged(
                "the journal is gone", path=FOLDER, why=f"the newest checkpoint stands at record {after}",
                remedy="copy the folder journal/ back from where this workspace came from",
            )  # fmt: skip
        return Tail([], 1)
    needed = [first for first in firsts if first > after + 1]
    start = max((first for first in firsts if first <= after + 1), default=None)
    if start is None:
        raise _gap(segment_path(firsts[0]), after + 1, firsts[0])
    needed.insert(0, start)
    lines: list[Line] = []
    good, torn, expected = b"", None, start
    for first in needed:
        path = segment_path(first)
        if first != expected:
            raise _gap(path, expected, first)
        data = store.read(path, limit=_READ_LIMIT).data
        found, expected, good, torn = _read_segment(path, data, first, after, is_last=first == needed[-1])
        lines.extend(found)
    if expected <= after:
        raise Damaged(
            "the journal ends before the newest checkpoint", path=FOLDER,
            why=f"its last record is {expected - 1}, the checkpoint stands at {after}: they are not of one moment",
            remedy="copy the folder anew, or move the newer files of checkpoints/ away",
        )  # fmt: skip
    if lines and lines[0].seq <= after:
        lines = lines[after + 1 - lines[0].seq :]
    return Tail(lines, expected, segment_path(needed[-1]), good, torn)


def _read_segment(
    path: str, data: bytes, first: int, after: int, *, is_last: bool
) -> tuple[list[Line], int, bytes, str | None]:
    """The records of a segment, from `after` on where they are needed; the seq that is due next; the part that is
    good; and what is torn."""
    rows = data.split(b"\n")
    known = _known(rows, first, after)
    lines: list[Line] = []
    due = first + known
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
            return lines, due, data, None
        reason = "it has no end"
    at = due - first
    if not is_last or any(group > due for group in _later_groups(rows[at + 1 :])):
        raise Damaged(
            f"line {at + 1} is broken", path=path, why=f"{reason}, and whole records follow it",
            remedy="this is not what a crash leaves: take the file from a backup, "
            "or run `satchel log` to see what can still be read",
        )  # fmt: skip
    good = sum(len(row) + 1 for row in rows[:at])
    return lines, due, data[:good], f"{len(data) - good} bytes at the end of {path} (record {due}: {reason})"


def _known(rows: Sequence[bytes], first: int, after: int) -> int:
    """How many rows a checkpoint at `after` has made needless to read: opening reads the tail, not the history."""
    count = after + 1 - first
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
    synced but written anew.
    """
    if tail.last_segment is None or (tail.good and not tail.lines and not tail.torn):
        return  # a checkpoint that covers all of it was written only when it was durable
    if tail.good:
        store.replace(tail.last_segment, tail.good)
    else:
        store.remove(tail.last_segment)


class Journal:
    """The writing end. One per opening of a workspace, used from one event loop.

    `add` only collects; `flush` and `durable` make all that was collected durable, in one group, and then call
    `on_durable` with it. After a failed write or sync nothing more is written, and every call raises what happened.
    """

    def __init__(self, store: Store, *, epoch: int, next_seq: int, on_durable: Callable[[Sequence[Line]], None]):
        self.epoch = epoch
        self.bytes_written = 0
        self._store, self._next_seq, self._on_durable = store, next_seq, on_durable
        self._log: Log | None = None
        self._log_bytes = 0
        self._waiting: list[Line] = []
        self._encoded: list[bytes] = []
        self.waiting_bytes = 0
        self._sleepers: list[asyncio.Future[None]] = []
        self._failed: SatchelError | None = None

    def add(self, record: AnyRecord) -> int:
        """Put `record` into the next group and return its seq."""
        if self._failed:
            raise self._failed
        seq = self._next_seq
        line = Line(seq, self._waiting[0].seq if self._waiting else seq, now(), self.epoch, record)
        data = encode(line)
        if len(data) > RECORD_BYTES:
            raise SatchelError(
                f"a change of {len(data):,} bytes is too large for one record",
                remedy="keep large data in outputs/ (run.output) and only its name in the state",
            )
        self._next_seq = seq + 1
        self._waiting.append(line)
        self._encoded.append(data)
        self.waiting_bytes += len(data)
        return seq

    def flush(self) -> None:
        """Make everything added so far durable. One write, one sync."""
        if self._failed:
            raise self._failed
        if not self._waiting:
            return
        lines, self._waiting = self._waiting, []
        data = self._encoded[0] if len(self._encoded) == 1 else b"".join(self._encoded)
        self._encoded, self.waiting_bytes = [], 0
        try:
            if self._log is None or self._log_bytes >= SEGMENT_BYTES:
                self.close()
                self._log, self._log_bytes = self._store.create_log(segment_path(lines[0].seq), data), 0
            else:
                self._log.append(data)
            self._log_bytes += len(data)
            self.bytes_written += len(data)
            self._on_durable(lines)
        except FileExistsError as error:
            taken = Damaged(
                "something lies where the next records belong", path=segment_path(lines[0].seq),
                why="another process has written this journal, or a folder has this name",
                remedy="see to it that no other process runs this workspace, move it away, and run again",
            )  # fmt: skip
            self._fail(taken)
            raise taken from error
        except BaseException as error:  # also of `on_durable`: what does not fit can't be built on
            self._fail(error)
            raise

    async def durable(self, *, alone: bool) -> None:
        """Return when everything added so far is durable.

        `alone` says that nobody else is about to add: then it is flushed at once. Otherwise whoever else is ready in
        this turn of the loop comes along in the same group.
        """
        if alone or self._failed:
            self.flush()
            self._wake(None)
            return
        loop = asyncio.get_running_loop()
        if not self._sleepers:
            loop.call_soon(self._flush_for_all)
        sleeper = loop.create_future()
        self._sleepers.append(sleeper)
        await sleeper

    def end(self) -> None:
        """Nothing more is written: the workspace may have another owner."""
        self.close()
        self._failed = self._failed or AgentError("the run has ended", remedy="await every task before it does")

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _flush_for_all(self) -> None:
        if not self._sleepers:
            return  # somebody who was alone flushed for all
        try:
            self.flush()
        except Exception as error:
            self._wake(error)
        else:
            self._wake(None)

    def _wake(self, error: Exception | None) -> None:
        sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            if sleeper.done():
                continue  # cancelled meanwhile
            if error:
                sleeper.set_exception(error)
            else:
                sleeper.set_result(None)

    def _fail(self, error: BaseException) -> None:
        """What was being written may or may not be there; only a new opening can tell."""
        self._failed = error if isinstance(error, SatchelError) else StorageFailed("interrupted", path=FOLDER)
        self.close()


def _gap(path: str, expected: int, found: int) -> Damaged:
    return Damaged(
        f"records {expected} to {found - 1} are missing before it", path=path,
        remedy="copy the folder journal/ whole, from where this workspace came from",
    )  # fmt: skip
