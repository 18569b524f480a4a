"""messages.jsonl: the conversation, oldest first, one message a line. It is only appended to.

A checkpoint says how far the file had come, so that opening compares one checksum and re-adds what came after.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from ..schemas import Problem
from .checkpoint import MessagesAt
from .errors import InvalidFile
from .record import Line, Message
from .store import Store

PATH = "messages.jsonl"
REJECTED = "messages.rejected.jsonl"
_READ_LIMIT = 1 << 30


class Row(msgspec.Struct, frozen=True):
    """One message as it lies in the file."""

    seq: int
    at: str
    role: str
    content: Any


def encode(lines: Iterable[Line]) -> bytes:
    rows = []
    for line in lines:
        assert isinstance(line.record, Message)
        rows.append(
            msgspec.json.encode(
                {"seq": line.seq, "at": line.at, "role": line.record.role, "content": line.record.content}
            )
        )
    return b"".join(row + b"\n" for row in rows)


def read(store: Store) -> list[Row]:
    try:
        data = store.read(PATH, limit=_READ_LIMIT).data
    except FileNotFoundError:
        return []
    rows = []
    for number, row in enumerate(data.splitlines(), start=1):
        try:
            rows.append(msgspec.json.decode(row, type=Row))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            problem = Problem(f"line {number}", str(error), "a message", "run `satchel recover`: it is restored")
            raise InvalidFile(PATH, [problem]) from error
    return rows


class MessageFile:
    """The writing end: knows what the file holds without reading it."""

    def __init__(self, store: Store, at: MessagesAt):
        self.at = at
        self._store = store

    def append(self, lines: list[Line]) -> None:
        if not lines:
            return
        data = encode(lines)
        self._store.append(PATH, data)
        self.at = _after(self.at, len(lines), data)

    def sync(self) -> None:
        """Make it durable, before a checkpoint relies on it."""
        if self.at.bytes:
            self._store.append(PATH, b"", durable=True)


def restore(store: Store, checkpointed: MessagesAt, later: list[Line]) -> tuple[MessageFile, str | None] | None:
    """Bring the file to the moment: what the checkpoint knows, then `later`. Also says what was wrong with it.

    None if what the checkpoint knows is gone from the file; then the whole journal is needed.
    """
    try:
        found = store.read(PATH, limit=_READ_LIMIT).data
    except FileNotFoundError:
        found = None
    known = (found or b"")[: checkpointed.bytes]
    if len(known) != checkpointed.bytes or f"{zlib.crc32(known):08x}" != checkpointed.crc:
        return None
    data = encode(later)
    at = _after(checkpointed, len(later), data)
    wanted = known + data
    complaint = None
    if found is None:
        if wanted:
            store.replace(PATH, wanted, sync="data")
    elif found != wanted:
        whole = found.split(b"\0", 1)[0]  # what a power failure took is a hole or the end
        if not wanted.startswith(whole[: whole.rfind(b"\n") + 1]):
            store.append(REJECTED, found, durable=True)
            complaint = f"{PATH} was changed by hand; it can't be edited, so your version is kept as {REJECTED}"
        store.replace(PATH, wanted, sync="data")
    return MessageFile(store, at), complaint


def rebuild(store: Store, lines: list[Line]) -> MessageFile:
    """Write the file anew from all committed messages of the journal; what was there is kept aside."""
    with suppress(FileNotFoundError):
        store.append(REJECTED, store.read(PATH, limit=_READ_LIMIT).data, durable=True)
    data = encode(lines)
    store.replace(PATH, data, sync="data")
    return MessageFile(store, _after(MessagesAt(), len(lines), data))


def _after(at: MessagesAt, count: int, data: bytes) -> MessagesAt:
    crc = zlib.crc32(data, int(at.crc, 16))
    return MessagesAt(at.count + count, at.bytes + len(data), f"{crc:08x}")
