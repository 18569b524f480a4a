"""messages.jsonl: the conversation, oldest first, one message per line. It is appended to, until a person edits it.

A checkpoint records the length of the file, so that an opening compares one checksum and adds later messages. From then
on it is read from its end, only as far back as needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice

import msgspec

from ...schemas import Problem
from ..base import InvalidFile
from ..journal.records import Line
from ..state import AgentMoment, MessagesAt
from ..store import Store
from . import conversation
from .conversation import NAME as NAME
from .conversation import Row as Row
from .conversation import position
from .guarded_files import Guard

KEPT = 64 << 10
"""Bytes of the newest rows that stay in memory, or as many as were ever requested."""


def encode(lines: Iterable[Line]) -> bytes:
    """The rows of messages, as they lie in the file."""
    return conversation.encode(conversation.follow((), lines))


class MessageFile:
    """The open file of one agent. It is appended to, and read from its newest message backwards.

    Its content is known, so reading touches the disk only for rows that are no longer in memory. What a person saves is
    left as it is until it is taken; then the whole file is written again.
    """

    def __init__(self, store: Store, folder: str, guard: Guard | None = None):
        self.at = MessagesAt()
        """The length of the file once everything is written."""
        self.left_out = 0
        """So many of the newest messages are not in the file, because a person has saved it."""
        self.recall: Callable[[], bytes] = lambda: b""
        """Reads the whole conversation from the journal, where the file is a person's or gone."""
        self._store, self._path, self._guard = store, folder + NAME, guard or Guard(store)
        self._whole: bytes | None = None  # to be written in place of the file
        self._begin(b"")

    def _begin(self, whole: bytes) -> None:
        newest = whole[whole.rfind(b"\n", 0, max(0, len(whole) - KEPT)) + 1 :]
        self._newest = deque(newest.splitlines(keepends=True))  # the end of the file, at least a row if it has any
        self._newest_bytes = len(newest)
        self._kept = KEPT

    def become(self, whole: bytes, *, is_there: bool = False) -> None:
        """From now on the conversation is `whole`. The next `write` puts it in place of the file, unless it `is_there`
        already."""
        self.at, self.left_out = position(whole), 0
        self._whole = None if is_there else whole
        if is_there:
            self._guard.versions[self._path] = self._store.version(self._path)
        self._begin(whole)

    def write(self, lines: list[Line]) -> None:
        """Write what the file lacks, and these messages."""
        data = encode(lines)
        self.at = position(data, self.at)
        rows = data.splitlines(keepends=True)
        self._newest.extend(rows)
        self._newest_bytes += len(data)
        while len(self._newest) > 1 and self._newest_bytes - len(self._newest[0]) >= self._kept:
            self._newest_bytes -= len(self._newest.popleft())
        is_left = (self._whole is not None or bool(data)) and self._guard.is_left(self._path)
        if self._whole is not None:
            whole = self._whole + data
            self._whole = whole if is_left else None
            if not is_left and (whole or self._store.version(self._path) is not None):
                self._guard.rewrite(self._path, whole)
        elif data and not is_left:
            self._guard.append(self._path, data)
        self.left_out += len(rows) if is_left else 0

    def newest_first(self) -> Iterator[Row]:
        """Its messages, read as far back as the iteration goes. Write nothing meanwhile.

        InvalidFile if the file is not the one that was written. Not guaranteed: that a change of an older message
        during the run is seen before it is taken.
        """
        told = 0
        while True:
            for row in islice(reversed(self._newest), told, None):
                try:
                    yield conversation.row_of(row)
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
        self._guard.wait()
        older: list[bytes] = []
        while not older:
            size = min(2 * size, self.at.bytes)
            data = b""
            with suppress(FileNotFoundError):
                data = self._store.tail(self._path, size)
            is_whole = size == self.at.bytes
            if len(data) != size or not data.endswith(b"\n" + known) or (is_whole and position(data) != self.at):
                data, is_whole = self.recall()[: self.at.bytes], True
                if position(data) != self.at:
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
            "stop the run and resume it: a valid edit is taken, and else the file is restored and your version kept",
        )
        return InvalidFile(self._path, [problem])

    def sync(self) -> None:
        """Make it durable, before a checkpoint relies on it."""
        self._guard.wait()
        if self.at.bytes:
            self._store.append(self._path, b"", durable=True)


def is_whole(store: Store, agent: AgentMoment) -> bool:
    """Whether the file shows the whole conversation."""
    found = conversation.read(store, agent.folder + NAME)
    data = found.data if found else b""
    return conversation.of_file(agent, data) == data
