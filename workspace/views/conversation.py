"""The conversation of an agent as its records make it: messages in the order of their commits, then changed by people.

messages.jsonl shows it, one row for each message. What only adds messages can be followed without reading the file. An
edit of a person is of any of them, so after one the conversation is read from the journal.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from .. import journal
from ..base import Damaged
from ..formats import decoder
from ..journal.records import Edited, Line, Message, MessageEdit
from ..state import AgentMoment, MessagesAt, Moment, folder_of_agent
from ..store import Content, Store, read_if_there

NAME = "messages.jsonl"
READ_LIMIT = 1 << 30
_EMPTY = MessagesAt()


class Row(msgspec.Struct, frozen=True):
    """One message as it lies in the file. Its `seq` is that of its record, also after an edit."""

    seq: int
    at: str
    role: str
    content: Raw


row_of = decoder(Row).decode


def read(store: Store, path: str) -> Content | None:
    """The file; None if it is not there, which costs no request."""
    return read_if_there(store, path, limit=READ_LIMIT) if store.version(path) is not None else None


def encode(rows: Iterable[Row]) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def decode(data: bytes) -> list[Row]:
    """The rows of a file that Satchel has written."""
    return [row_of(line) for line in data.splitlines()]


def follow(rows: Sequence[Row], lines: Iterable[Line]) -> list[Row]:
    """The conversation `rows` after `lines`, which add messages and edit them."""
    found = [*rows]
    for line in lines:
        if isinstance(line.record, Message):
            found.append(Row(line.seq, line.at, line.record.role, line.record.content))
        elif isinstance(line.record, Edited):
            found = _edited(found, line, line.record.messages)
    return found


def _edited(rows: Sequence[Row], line: Line, edits: Sequence[MessageEdit]) -> list[Row]:
    changes = {each.seq: each for each in edits if each.seq}
    new = [Row(line.seq, line.at, each.role, each.content) for each in edits if not each.seq]
    before = next((each.before for each in edits if not each.seq), 0)
    found = list[Row]()
    for row in rows:
        if row.seq == before:
            found += new
            new = []
        change = changes.get(row.seq)
        if change is None or not change.is_removal:
            found.append(row if change is None else replace(row, role=change.role, content=change.content))
    return found + new


def is_edited(lines: Iterable[Line]) -> bool:
    """Whether they change messages, and not only add some."""
    return any(isinstance(line.record, Edited) for line in lines)


def position(data: bytes, before: MessagesAt = _EMPTY) -> MessagesAt:
    """The length of the file after `data` was added to it."""
    crc = f"{zlib.crc32(data, int(before.crc, 16)):08x}"
    return MessagesAt(before.count + data.count(b"\n"), before.bytes + len(data), crc)


def of_file(agent: AgentMoment, data: bytes) -> bytes | None:
    """The whole conversation, if this content of the file still has all that it had when the moment was read. None if
    the journal is needed for it."""
    at, later = agent.messages_at, agent.new_messages
    known = data[: at.bytes]
    return None if is_edited(later) or position(known) != at else known + encode(follow((), later))


def recorded(store: Store, moment: Moment) -> dict[str, list[list[Row]]]:
    """By agent, its conversation before each edit up to the moment, and at last as it is, from the journal. That may no
    longer have all of it; see `checked`."""
    kept = [line for line in journal.kept_lines(store) if isinstance(line.record, Message) or _is_of_messages(line)]
    later = journal.read(store, after=journal.first_kept(store) - 1).lines
    found: dict[str, list[list[Row]]] = {path: [[]] for path in moment.agents}
    waiting: dict[str, list[Line]] = {path: [] for path in moment.agents}
    for line in (*kept, *journal.conversation(later)):
        path = line.record.agent
        if line.seq > moment.seq or path not in found:
            continue
        if isinstance(line.record, Edited):
            found[path][-1] = follow(found[path][-1], waiting[path])
            found[path].append(found[path][-1])
            waiting[path].clear()
        waiting[path].append(line)
    for path, lines in waiting.items():
        found[path][-1] = follow(found[path][-1], lines)
    return found


def lines_of(path: str, rows: Sequence[Row]) -> list[Line]:
    """Records that make this conversation, in their order, for a journal that has lost those that made it."""
    found, older = list[Line](), list[int]()
    for row in reversed(rows):
        before = next((seq for seq in reversed(older) if seq < row.seq), 0)
        older.append(row.seq)
        said = Message(agent=path, scope="", role=row.role, content=row.content)
        edit = MessageEdit(before=before, role=row.role, content=row.content)
        record = Edited(agent=path, file=folder_of_agent(path) + NAME, by="a person", sha="", messages=(edit,))
        found.append(Line(row.seq, row.seq, row.at, 0, record if before else said))
    return sorted(found, key=lambda line: line.seq)


def checked(agent: AgentMoment, rows: list[Row]) -> list[Row]:
    """Damaged if the journal no longer has the whole conversation."""
    if len(rows) == agent.messages:
        return rows
    raise Damaged(
        "is missing or damaged, and the journal to rebuild it from is missing",
        path=f"{agent.folder}{NAME}",
        remedy="copy it, or the folder journal/, from the place where this workspace came from",
    )


def _is_of_messages(line: Line) -> bool:
    return isinstance(line.record, Edited) and bool(line.record.messages)
