"""Where groups of records go: to the end of the current segment, or where files can't grow, into objects of their own.

Where files can grow, a run that is started every minute leaves many small segments. At a stop they are merged: the
merged segment replaces the first of them in one rename; then the others are removed. A crash in between leaves segments
whose records the merged one holds too. Readers count each record once, and the next merge removes them. The newest
segment is not merged: only it may be torn, and an opening needs little else.

Elsewhere each group is an object, created exclusively, one at a time, and a fence excludes every earlier writer. A
fence is a segment of one record, created exclusively at the next name. There the earlier writer would have to put its
next commit, so it can't write. Then the journal is read again. If it ends with this fence, no other process was faster,
and everything that was acknowledged before is known.

Reading must not need a request for each commit. So a segment first repeats the records since the last roll-up, if they
are small: the newest segment alone shows the last commits. And a roll-up puts the records of the segments after the
fence into the fence's own object, and removes these segments except the last. So the segment with the highest name
always shows the end of the journal.

The fence's name stays taken, so no earlier writer can write there again. A writer rolls up only what comes after its
own fence, and replaces the object only if it is as it left it. So a frozen writer that wakes up can't undo anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from ..base import Damaged, LeaseHeld, NewerFormat, SatchelError, StorageFailed, taken_over
from ..store import LARGE_LIMIT, AppendFile, FileChanged, Store, Version
from .line import Line, crc_of, now, parse_each, written
from .reader import Tail
from .records import Fenced
from .segment import FOLDER, first_of, new_opening, segment_path, segments, sizes

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


_TRIES = 20

Look = Callable[[Line | None], tuple[int, Tail]]
"""Reads the new part of the journal, and returns it with the epoch of its last record. Its argument is the fence, if
one was written; then the journal was just listed. Otherwise it makes a new listing."""

REPEATED_BYTES = 32 << 10
"""The limit for repeated records in a segment."""

ROLLED_BYTES = 2 << 20
"""The limit for records in a rolled-up object."""


class Fence(NamedTuple):
    """A place in the journal, after which it belongs to this writer."""

    line: Line
    path: str
    version: Version
    data: bytes


def fence(store: Store, epoch: int, tail: Tail, look: Look) -> Fence:
    """Take the journal that ends with `tail`, written in `epoch`. LeaseHeld if other processes are faster again and
    again.

    Some servers keep an empty object of a PUT whose sender was killed before its data had arrived. It holds the next
    name and no record, so a fence takes its place."""
    hollow: _Hollow | None = None
    for _ in range(_TRIES):
        seq = tail.next_seq
        data, line = written(Line(seq, seq, now(), epoch + 1, Fenced(), tail.crc, new_opening()))
        path = segment_path(line.seq)
        try:
            if hollow is not None and hollow.path == path:
                store.replace(path, data, if_version=hollow.version)
            else:
                store.create(path, data)
        except (FileExistsError, FileChanged):
            hollow = _hollow(store, path)  # a move empties segments, too, but then the next look raises
            epoch, tail = look(None)
            continue
        store.refresh(FOLDER)
        version = store.version(path)
        epoch, tail = look(line)
        if version is not None and tail.lines and tail.lines[-1] == line:
            return Fence(line, path, version, data)
    raise LeaseHeld(
        "other processes take this workspace at the same time",
        path=store.url,
        why=f"{_TRIES} attempts failed",
        remedy="let only one process run it",
    )


class _Hollow(NamedTuple):
    """An empty object under the name of a segment."""

    path: str
    version: Version


def _hollow(store: Store, path: str) -> _Hollow | None:
    store.refresh(FOLDER)
    version = store.version(path)
    with suppress(FileNotFoundError):
        if version is not None and store.abilities.conditional_replace:
            return None if store.read(path, limit=LARGE_LIMIT).data else _Hollow(path, version)
    return None


def check_newest(store: Store, epoch: int) -> None:
    """LeaseHeld if another writer has fenced off the one of `epoch`. Costs a listing of the journal, and a read of its
    newest segment unless this store wrote that. A writer's fence comes before all its other writes. So a file that was
    read before a successful check was not written by a later writer."""
    while True:
        store.refresh(FOLDER)
        newest = max(segments(store), default=0)
        if not newest:
            return
        with suppress(FileNotFoundError):  # rolled up meanwhile
            if not _is_of(store.read(segment_path(newest), limit=LARGE_LIMIT).data, epoch):
                raise taken_over(segment_path(newest), "it has written to the journal")
            return


def _is_of(segment: bytes, epoch: int) -> bool:
    """Whether the writer of `epoch`, or an earlier one, has written this. An empty segment means that the run has moved
    away. A segment that can't be read comes from a newer Satchel."""
    try:
        lines = [*parse_each(segment.split(b"\n")[:-1])]
    except NewerFormat:
        return False
    return bool(lines) and lines[-1] is not None and lines[-1].epoch <= epoch


class SegmentObjects:
    """The segments of one opening, after its fence. `write` is called by one thread at a time."""

    def __init__(self, store: Store, fence: str, version: Version, data: bytes):
        """`fence` is this opening's, created as `version` with `data`."""
        self._store = store
        self._head, self._version, self._rolled = fence, version, data  # the object that is rolled up into
        self._repeated = b""
        self._is_unrolled = False  # some segments are not repeated in the newest
        self._is_first = True  # after a roll-up: a next one may include the rest, so no segment repeats it
        self._segments: list[tuple[str, bytes]] = []  # after the head: path, and its own records
        self._left = ""  # the last of those that are rolled up
        self._lock = threading.Lock()  # protects the fields above: groups come during a roll-up
        self._roller = ThreadPoolExecutor(1, "satchel-roll-up")
        self._rolling: Future[None] | None = None
        self._fenced = False
        self.is_full = True  # each group is a segment

    @property
    def growing(self) -> int:
        with self._lock:
            return first_of(self._head)

    def write(self, lines: Sequence[Line], data: bytes) -> None:
        """One PUT. LeaseHeld if the name is taken: another process has taken the workspace."""
        path = segment_path(lines[0].seq)
        with self._lock:
            if len(self._repeated) + len(data) > REPEATED_BYTES:
                self._is_unrolled |= bool(self._repeated)
                self._repeated = b""
            body = self._repeated + data
        try:
            self._store.create(path, body)
        except FileExistsError as error:
            raise taken_over(path, "it has written to the journal") from error
        with self._lock:
            self._repeated = b"" if self._is_first else body
            self._is_first = False
            self._segments.append((path, data))
            if self._is_unrolled and not self._fenced and (self._rolling is None or self._rolling.done()):
                self._rolling = self._roller.submit(self._roll_up)

    def roll_up(self) -> None:
        """Put all records into one object, as at a stop."""
        if self._rolling is not None:
            self._rolling.result()
        if self._segments and not self._fenced:
            self._roll_up()

    def close(self) -> None:
        self._roller.shutdown(wait=True)

    def _roll_up(self) -> None:
        with self._lock:
            segments = [*self._segments]
            self._repeated, self._is_unrolled = b"", False
            self._is_first = True
        added = b"".join(data for _, data in segments)
        # A failure loses nothing: all segments are still there.
        with suppress(StorageFailed):
            try:
                if len(self._rolled) + len(added) > ROLLED_BYTES and len(self._rolled) > len(added):
                    self._begin_anew(segments, added)
                else:
                    self._version = self._replace_head(self._rolled + added)
                    self._rolled += added
            except (FileChanged, FileNotFoundError):
                self._fenced = True  # another process has it: the next commit will say so
                return
            with self._lock:
                del self._segments[: len(segments)]
            paths = [self._left, *(path for path, _ in segments)]
            self._left = paths[-1] if paths[-1] != self._head else ""
            self._store.remove_many([path for path in paths[:-1] if path and path != self._head])

    def _replace_head(self, data: bytes) -> Version:
        """FileChanged if another process has changed it. An earlier roll-up whose request was given up may have
        arrived."""
        try:
            return self._store.replace(self._head, data, if_version=self._version)
        except FileChanged:
            found = self._store.read(self._head, limit=LARGE_LIMIT)
            if not found.data or not data.startswith(found.data):  # empty: the run has moved away
                raise
            return self._store.replace(self._head, data, if_version=found.version)

    def _begin_anew(self, segments: Sequence[tuple[str, bytes]], added: bytes) -> None:
        """The first of `segments` becomes the object for roll-ups."""
        first = segments[0][0]
        version = self._store.version(first)
        if version is None:
            raise FileChanged(first)
        self._version = self._store.replace(first, added, if_version=version)
        self._head, self._rolled = first, added
