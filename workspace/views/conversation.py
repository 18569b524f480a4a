"""The conversation of an agent as its records make it: messages in the order of their commits, then changed by people;
and messages.jsonl, which shows it, one row for each message. Also the other logs of an agent, in logs/: they are only
added to.

What only adds messages can be followed without reading the file. An edit of a person is of any of them, so after one
the conversation is read from the journal. A checkpoint records the length of the file, so that an opening compares one
checksum and adds later messages. From then on it is read from its end, only as far back as needed.

It is shown by pages: from its end, from a place in it, and what has a text in it. A page costs what is on it, however
long the conversation is. A place is an offset in the file, which only grows at its end unless a person edits it.

Calls of tools and their results belong together, whatever package has made the messages (`mentions`). Known are the
shapes of OpenAI (chat completions and responses), Anthropic and Pydantic AI. A message may be one of them, the list of
blocks in it, or several.
"""

from __future__ import annotations

import io
import zlib
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ...schemas import Problem
from .. import journal
from ..base import Damaged, InvalidFile, UsageError
from ..formats import decoder
from ..journal import NOTHING, Edited, Line, Message, MessageEdit
from ..state import MESSAGES, LogPlace, MessagesAt, Moment, RowLog, folder_of_agent, log_key
from ..store import LARGE_LIMIT, FileContent, Store, Version, read_if_there
from .guarded_files import ViewGuard

NAME = MESSAGES
_EMPTY = MessagesAt()

KEPT = 64 << 10
"""Bytes of the newest rows that stay in memory, or as many as were ever requested."""

PAGE_BYTES = 2 << 20
"""Bytes of rows on a page; a longer row is alone on its page."""

SEARCHED = 32 << 20
"""Bytes that one search reads."""

_CHUNK = 256 << 10
_DEPTH = 24


class MessageRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message as it lies in the file, or a row of another log, which has no role. Its `seq` is that of its record,
    also after an edit."""

    seq: int
    at: str
    role: str = ""
    content: Raw = NOTHING


row_of = decoder(MessageRow).decode


def read(store: Store, path: str) -> FileContent | None:
    """The file; None if it is not there, which costs no request."""
    return read_if_there(store, path, limit=LARGE_LIMIT) if store.version(path) is not None else None


def encode(rows: Iterable[MessageRow]) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def decode(data: bytes) -> list[MessageRow]:
    """The rows of a file that Satchel has written."""
    return [row_of(line) for line in data.splitlines()]


def follow(rows: Sequence[MessageRow], lines: Iterable[Line]) -> list[MessageRow]:
    """The conversation `rows` after `lines`, which add messages and edit them."""
    found = [*rows]
    for line in lines:
        if isinstance(line.record, Message):
            found.append(MessageRow(line.seq, line.at, line.record.role, line.record.content))
        elif isinstance(line.record, Edited):
            found = _edited(found, line, line.record.messages)
    return found


def _edited(rows: Sequence[MessageRow], line: Line, edits: Sequence[MessageEdit]) -> list[MessageRow]:
    changes = {each.seq: each for each in edits if each.seq}
    new = [MessageRow(line.seq, line.at, each.role, each.content) for each in edits if not each.seq]
    before = next((each.before for each in edits if not each.seq), 0)
    found = list[MessageRow]()
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


def of_file(log: RowLog, data: bytes) -> bytes | None:
    """The whole conversation, or log, if this content of the file still has all that it had when the moment was read.
    None if the journal is needed for it."""
    at, later = log.messages_at, log.new_messages
    known = data[: at.bytes]
    return None if is_edited(later) or position(known) != at else known + encode(follow((), later))


def recorded(store: Store, moment: Moment) -> dict[str, list[list[MessageRow]]]:
    """By the key of each log, it before each edit up to the moment, and at last as it is, from the journal. That may no
    longer have all of it; see `checked`."""
    kept = [line for line in journal.kept_lines(store) if isinstance(line.record, Message) or _is_of_messages(line)]
    later = journal.read(store, after=journal.first_kept(store) - 1).lines
    found: dict[str, list[list[MessageRow]]] = {place.key: [[]] for place in moment.row_logs}
    waiting: dict[str, list[Line]] = {key: [] for key in found}
    for line in (*kept, *journal.conversation(later)):
        path = log_key(line.record.agent, line.record.log if isinstance(line.record, Message) else "")
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


def lines_of(key: str, rows: Sequence[MessageRow]) -> list[Line]:
    """Records that make this conversation, or log, in their order, for a journal that has lost those that made it."""
    path, _, log = key.partition(":")
    found, older = list[Line](), list[int]()
    for row in reversed(rows):
        before = next((seq for seq in reversed(older) if seq < row.seq), 0)
        older.append(row.seq)
        said = Message(agent=path, scope="", role=row.role, content=row.content, log=log)
        edit = MessageEdit(before=before, role=row.role, content=row.content)
        record = Edited(agent=path, file=folder_of_agent(path) + NAME, by="a person", sha="", messages=(edit,))
        found.append(Line(row.seq, row.seq, row.at, 0, record if before else said))
    return sorted(found, key=lambda line: line.seq)


def checked(place: LogPlace, rows: list[MessageRow]) -> list[MessageRow]:
    """Damaged if the journal no longer has the whole log."""
    if len(rows) == place.log.messages:
        return rows
    raise Damaged(
        "is missing or damaged, and the journal to rebuild it from is missing",
        path=place.path,
        remedy="copy it, or the folder journal/, from the place where this workspace came from",
    )


def _is_of_messages(line: Line) -> bool:
    return isinstance(line.record, Edited) and bool(line.record.messages)


class MessageFile:
    """The open file of one log. It is appended to, and read from its newest message backwards.

    Its content is known, so reading touches the disk only for rows that are no longer in memory. What a person saves is
    left as it is until it is taken; then the whole file is written again.
    """

    def __init__(self, store: Store, path: str, guard: ViewGuard | None = None):
        self.at = MessagesAt()
        """The length of the file once everything is written."""
        self.left_out = 0
        """So many of the newest messages are not in the file, because a person has saved it."""
        self.recall: Callable[[], bytes] = lambda: b""
        """Reads the whole conversation from the journal, where the file is a person's or gone."""
        self._store, self._path, self._guard = store, path, guard or ViewGuard(store)
        self._whole: bytes | None = None  # to be written in place of the file
        self._begin(b"")

    def _begin(self, whole: bytes) -> None:
        newest = whole[whole.rfind(b"\n", 0, max(0, len(whole) - KEPT)) + 1 :]
        self._newest = deque(newest.splitlines(keepends=True))  # the end of the file, at least a row if it has any
        self._newest_bytes = len(newest)
        self._kept = KEPT

    def become(self, whole: bytes, *, is_there: bool = False, version: Version | None = None) -> None:
        """From now on the conversation is `whole`. The next `write` puts it in place of the file, unless it `is_there`
        already: then the file had this `version` when it was read."""
        self.at, self.left_out = position(whole), 0
        self._whole = None if is_there else whole
        if is_there:
            self._guard.versions[self._path] = version
        self._begin(whole)

    def go_on(self, at: MessagesAt, version: Version | None) -> None:
        """The file is there, as long as `at` says, and is unchanged since. It is read only where needed."""
        self._begin(b"")
        self.at, self._whole = at, None
        self._guard.versions[self._path] = version

    def write(self, lines: list[Line]) -> None:
        """Write what the file lacks, and these messages."""
        data = encode(follow((), lines))
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

    def newest_first(self) -> Iterator[MessageRow]:
        """Its messages, read as far back as the iteration goes. Write nothing meanwhile.

        InvalidFile if the file is not the one that was written. Not guaranteed: that a change of an older message
        during the run is seen before it is taken.
        """
        told = 0
        while True:
            for row in islice(reversed(self._newest), told, None):
                try:
                    yield row_of(row)
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
            size = min(max(KEPT, 2 * size), self.at.bytes)
            data = b""
            with suppress(FileNotFoundError):
                data = self._store.tail(self._path, size)
            is_whole, end = size == self.at.bytes, b"\n" + known if known else b"\n"
            if len(data) != size or not data.endswith(end) or (is_whole and position(data) != self.at):
                data, is_whole = self.recall()[: self.at.bytes], True
                if position(data) != self.at:
                    raise self._changed()
            older = data[: len(data) - len(known)].splitlines(keepends=True)
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


def is_whole(store: Store, place: LogPlace) -> bool:
    """Whether the file shows the whole log."""
    found = read(store, place.path)
    data = found.data if found else b""
    return of_file(place.log, data) == data


class SaidRow(msgspec.Struct, frozen=True):
    """A row of the file, from the place `begin` to `end`. `problem`: why it is none that can be read. Rows that are on
    record and not in the file yet have no place, so both are -1."""

    seq: int
    at: str
    role: str
    content: Any
    begin: int
    end: int
    problem: str = ""


class ConversationPage(msgspec.Struct, frozen=True):
    """Rows in the order of the file, which has `bytes` of them. `begin` and `end` are the places before the first and
    after the last one. Of a search they are how far it has read."""

    rows: list[SaidRow]
    begin: int
    end: int
    bytes: int


def page_before(store: Store, path: str, at: int | None, most: int) -> ConversationPage:
    """The last rows before a place; None is the end."""
    size = _size(store, path)
    end = size if at is None else min(at, size)
    rows, begin = list[SaidRow](), end
    for row in _backwards(store, path, end):
        if rows and (len(rows) >= most or end - row.begin > PAGE_BYTES):
            break
        rows.append(row)
        begin = row.begin
    return ConversationPage(rows[::-1], begin, end, size)


def page_after(store: Store, path: str, at: int, most: int) -> ConversationPage:
    """The first rows from a place on."""
    size = _size(store, path)
    begin = end = min(at, size)
    rows = list[SaidRow]()
    for row in _forwards(store, path, begin) if size else ():
        if rows and (len(rows) >= most or row.end - begin > PAGE_BYTES):
            break
        rows.append(row)
        end = row.end
    return ConversationPage(rows, begin, end, size)


def place_after(store: Store, path: str, seq: int) -> int:
    """The place after the last row of record `seq` or an earlier one, found by halves: records grow from row to row. It
    ends at a row that a person has put in later."""
    low, high = 0, (size := _size(store, path))
    while high - low > _CHUNK:
        middle = (low + high) // 2  # in the middle of a row, whose rest is none
        row = next((each for each in _forwards(store, path, middle) if each.seq), None)
        if row is None or row.begin >= high or row.seq > seq:
            high = middle
        else:
            low = row.end
    for row in _forwards(store, path, low) if size else ():
        if row.seq > seq:
            break
        low = row.end
    return low


def row_at(store: Store, path: str, at: int) -> SaidRow:
    """The row at a place. UsageError if there is none."""
    size = _size(store, path)
    row = next(iter(_forwards(store, path, min(at, size)) if size else ()), None)
    if row is None or row.problem:
        raise UsageError(f"has no message at {at:,}", path=path, remedy="open the conversation again")
    return row


def search(store: Store, path: str, text: str, at: int | None, most: int) -> ConversationPage:
    """The last rows before a place that have a text in them, in whatever case. Reads at most `SEARCHED` bytes."""
    size = _size(store, path)
    end = begin = size if at is None else min(at, size)
    rows = list[SaidRow]()
    for row in _backwards(store, path, end):
        if len(rows) >= most or end - row.begin > SEARCHED > end - begin > 0:
            break
        begin = row.begin
        if has_text(row.role, row.content, text):
            rows.append(row)
    return ConversationPage(rows[::-1], begin, end, size)


def has_text(role: str, content: Any, text: str) -> bool:
    """Whether a message has a text in it, in whatever case."""
    wanted = text.casefold()
    return any(wanted in each.casefold() for each in (role, *texts_in(content)))


def unwritten(log: RowLog, newest: int) -> list[SaidRow]:
    """The rows on record after record `newest` that the file does not have yet."""
    rows = follow((), [line for line in log.new_messages if isinstance(line.record, Message)])
    return [
        SaidRow(row.seq, row.at, row.role, msgspec.json.decode(row.content), -1, -1) for row in rows if row.seq > newest
    ]


def _size(store: Store, path: str) -> int:
    folder = path.rpartition("/")[0]
    store.refresh(folder)
    return next((entry.size for entry in store.list(folder) if entry.path == path), 0)


def _backwards(store: Store, path: str, end: int) -> Iterator[SaidRow]:
    at, rest, chunk = end, b"", _CHUNK
    while at > 0:
        begin = max(0, at - chunk)
        data = store.part(path, begin, at - begin) + rest
        first = 0 if begin == 0 else data.find(b"\n") + 1
        if begin and not first:  # the row is longer
            at, rest, chunk = begin, data, chunk * 2
            continue
        yield from reversed([*_rows(data[first:], begin + first)])
        at, rest, chunk = begin, data[:first], _CHUNK
    if rest:
        yield from _rows(rest, 0)


def _forwards(store: Store, path: str, begin: int) -> Iterator[SaidRow]:
    rest, chunk = b"", _CHUNK
    while data := store.part(path, begin + len(rest), chunk):
        data = rest + data
        end = data.rfind(b"\n") + 1
        yield from _rows(data[:end], begin)
        begin, rest, chunk = begin + end, data[end:], _CHUNK if end else chunk * 2
    yield from _rows(rest, begin)


def _rows(data: bytes, begin: int) -> Iterator[SaidRow]:
    for line in io.BytesIO(data):
        if line.strip():
            yield _row(line, begin)
        begin += len(line)


def _row(line: bytes, begin: int) -> SaidRow:
    end = begin + len(line)
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found = None
    if not isinstance(found, dict) or "content" not in found:
        shown = line[:_CHUNK].decode(errors="replace")
        return SaidRow(0, "", "", shown, begin, end, "this line of the file is no message")
    seq, at, role = found.get("seq"), found.get("at"), found.get("role")
    return SaidRow(
        seq if type(seq) is int else 0,
        at if isinstance(at, str) else "",
        role if isinstance(role, str) else "",
        found["content"],
        begin,
        end,
    )


def texts_in(value: Any, depth: int = 0, *, without: Container[str] = ()) -> Iterator[str]:
    """Each text in a JSON value, but those under the keys `without`."""
    if isinstance(value, str):
        yield value
    elif depth < _DEPTH and isinstance(value, dict):
        for key, each in value.items():
            if key not in without:
                yield from texts_in(each, depth + 1, without=without)
    elif depth < _DEPTH and isinstance(value, list):
        for each in value:
            yield from texts_in(each, depth + 1, without=without)


_INSIDE = ("content", "parts")
"""Where a message keeps its blocks."""


class Mention(NamedTuple):
    """A message mentions a call: it makes it, or has its result."""

    what: Literal["call", "result"]
    id: str


def mentions(content: Any) -> Iterator[Mention]:
    """What a message says of calls, in order. What is inside a result is a tool's, and means nothing."""
    if isinstance(content, list):
        for each in content:
            yield from mentions(each)
    elif isinstance(content, dict):
        found = [Mention(what, id) for what, id in _of_block(content) if isinstance(id, str)]
        yield from found
        for name in () if found else _INSIDE:
            yield from mentions(content.get(name))


def _of_block(block: dict[str, Any]) -> list[tuple[Literal["call", "result"], Any]]:
    kind, part = str(block.get("type", "")), block.get("part_kind")
    if part is not None:  # Pydantic AI
        is_result = part == "tool-return" or (part == "retry-prompt" and block.get("tool_name"))
        id = block.get("tool_call_id")
        return [("call", id)] if part == "tool-call" else [("result", id)] if is_result else []
    if isinstance(calls := block.get("tool_calls"), list):  # chat completions
        return [("call", call.get("id")) for call in calls if isinstance(call, dict)]
    if "tool_call_id" in block:
        return [("result", block["tool_call_id"])]
    if kind.endswith("_call"):  # responses
        return [("call", block.get("call_id", block.get("id")))]
    if kind.endswith("_call_output"):
        return [("result", block.get("call_id", block.get("id")))]
    if kind.endswith("tool_use"):  # Anthropic
        return [("call", block.get("id"))]
    return [("result", block["tool_use_id"])] if "tool_use_id" in block else []


def is_only_results(content: Any) -> bool:
    """Whether a message says nothing but results of calls."""
    if isinstance(content, list):
        return bool(content) and all(map(is_only_results, content))
    if not isinstance(content, dict):
        return False
    found = [what for what, id in _of_block(content) if isinstance(id, str)]
    return "call" not in found if found else any(is_only_results(content.get(name)) for name in _INSIDE)
