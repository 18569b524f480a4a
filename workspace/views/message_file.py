"""messages.jsonl: the conversation, oldest first, one message per line. It is only appended to.

A checkpoint records the length of the file, so that an opening compares one checksum and adds later messages. From then
on it is read from its end, only as far back as needed.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

import msgspec
from msgspec import Raw

from ...schemas import Problem
from ..base import InvalidFile, decoder
from ..journal.records import Line, Message
from ..state import MessagesAt
from ..store import Content, FileChanged, Store, read_if_there
from .write_behind import AtOnce, Behind

NAME = "messages.jsonl"
REJECTED = "messages.rejected.jsonl"
KEPT = 64 << 10
"""Bytes of the newest rows that stay in memory, or as many as were ever requested."""

_READ_LIMIT = 1 << 30


class Row(msgspec.Struct, frozen=True):
    """One message as it lies in the file."""

    seq: int
    at: str
    role: str
    content: Raw


_row = decoder(Row)


def encode(lines: Iterable[Line]) -> bytes:
    return b"".join(_encode(line) for line in lines)


def _encode(line: Line) -> bytes:
    assert isinstance(line.record, Message)
    return msgspec.json.encode(Row(line.seq, line.at, line.record.role, line.record.content)) + b"\n"


class MessageFile:
    """The open file of one agent. It is appended to, and read from its newest message backwards.

    Its content is known, so reading touches the disk only for rows that are no longer in memory.
    """

    def __init__(self, store: Store, folder: str, at: MessagesAt, whole: bytes = b""):
        """`at` is the length of the file, `whole` its content."""
        self.at = at
        self.behind: Behind = AtOnce()
        self._store, self._path = store, folder + NAME
        newest = whole[whole.rfind(b"\n", 0, max(0, len(whole) - KEPT)) + 1 :]
        self._newest = deque(newest.splitlines(keepends=True))  # the end of the file, at least a row if it has any
        self._newest_bytes = len(newest)
        self._kept = KEPT

    def append(self, lines: list[Line]) -> None:
        if not lines:
            return
        rows = [_encode(line) for line in lines]
        data = b"".join(rows)
        self.behind.do(self._path, lambda: self._store.append(self._path, data))
        self.at = _after(self.at, len(rows), data)
        self._newest.extend(rows)
        self._newest_bytes += len(data)
        while self._newest_bytes - len(self._newest[0]) >= self._kept:
            self._newest_bytes -= len(self._newest.popleft())

    def newest_first(self) -> Iterator[Row]:
        """Its messages, read as far back as the iteration goes. Append nothing meanwhile.

        InvalidFile if the file is not the one that was written. Not guaranteed: that a change of an older message
        during the run is seen before the next opening, which compares every byte.
        """
        told = 0
        while True:
            for row in islice(reversed(self._newest), told, None):
                try:
                    yield _row.decode(row)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    raise self._changed() from error
                told += 1
            if self._newest_bytes == self.at.bytes:
                return
            self._read_further_back()

    def _read_further_back(self) -> None:
        """At least one more row, and about as many bytes again as are in memory."""
        known = b"".join(self._newest)
        size = len(known)
        self.behind.wait()
        older: list[bytes] = []
        while not older:
            size = min(2 * size, self.at.bytes)
            data = b""
            with suppress(FileNotFoundError):
                data = self._store.tail(self._path, size)
            is_whole = size == self.at.bytes
            if len(data) != size or not data.endswith(b"\n" + known) or (is_whole and _crc(data) != self.at.crc):
                raise self._changed()
            older = data[: -len(known)].splitlines(keepends=True)
            if not is_whole:
                del older[0]  # where it begins is not known
        self._newest.extendleft(reversed(older))
        self._newest_bytes += sum(map(len, older))
        self._kept = max(self._kept, self._newest_bytes)

    def _changed(self) -> InvalidFile:
        problem = Problem(
            "as a whole",
            "a file that was changed or removed during the run",
            "the conversation as it was written",
            "stop the run and resume it: the file is restored, and your version kept",
        )
        return InvalidFile(self._path, [problem])

    def sync(self) -> None:
        """Make it durable, before a checkpoint relies on it."""
        self.behind.wait()
        if self.at.bytes:
            self._store.append(self._path, b"", durable=True)


def is_whole(store: Store, folder: str, checkpointed: MessagesAt, later: list[Line]) -> bool:
    """Whether `restore` would find nothing to do."""
    wanted = _after(checkpointed, len(later), encode(later))
    found = _read(store, folder + NAME)
    data = found.data if found else b""
    return len(data) == wanted.bytes and _crc(data) == wanted.crc


def restore(
    store: Store, folder: str, checkpointed: MessagesAt, later: list[Line]
) -> tuple[MessageFile, str | None] | None:
    """Bring the file to the moment: what the checkpoint knows, then `later`. Also returns what was wrong with it.

    None if the part that the checkpoint knows is gone; then the whole journal is needed.
    """
    complaint = ""
    while True:
        try:
            found = _read(store, folder + NAME)
            known = (found.data if found else b"")[: checkpointed.bytes]
            if len(known) != checkpointed.bytes or _crc(known) != checkpointed.crc:
                return None
            data = encode(later)
            complaint = _put(store, folder, found, known + data) or complaint
            return MessageFile(store, folder, _after(checkpointed, len(later), data), known + data), complaint or None
        except (FileChanged, FileExistsError):
            continue  # saved at this moment: that version is looked at, too


def _put(store: Store, folder: str, found: Content | None, wanted: bytes) -> str:
    """Write `wanted` in place of `found`. A person's version is kept; returns a message about it."""
    path, rejected = folder + NAME, folder + REJECTED
    if found is None:
        if wanted:
            store.create(path, wanted)
        return ""
    if found.data == wanted:
        return ""
    whole = found.data.split(b"\0", 1)[0]  # what a power failure took is a hole or the end
    is_edited = not wanted.startswith(whole)
    if is_edited:
        store.append(rejected, found.data, durable=True)
    store.replace(path, wanted, sync="data", if_version=found.version)
    return f"{path} was changed by hand; it can't be edited, so your version is kept as {rejected}" if is_edited else ""


def rebuild(store: Store, folder: str, lines: list[Line]) -> MessageFile:
    """Write the file again from all committed messages of the journal; the earlier file is kept."""
    path, data = folder + NAME, encode(lines)
    while True:
        found = _read(store, path)
        if found is not None:
            store.append(folder + REJECTED, found.data, durable=True)
        with suppress(FileChanged, FileExistsError):
            if found is not None:
                store.replace(path, data, sync="data", if_version=found.version)
            elif data:
                store.create(path, data)
            return MessageFile(store, folder, _after(MessagesAt(), len(lines), data), data)


def _read(store: Store, path: str) -> Content | None:
    return read_if_there(store, path, limit=_READ_LIMIT) if store.version(path) is not None else None


def _after(at: MessagesAt, count: int, data: bytes) -> MessagesAt:
    return MessagesAt(at.count + count, at.bytes + len(data), _crc(data, at.crc))


def _crc(data: bytes, before: str = "0") -> str:
    return f"{zlib.crc32(data, int(before, 16)):08x}"
