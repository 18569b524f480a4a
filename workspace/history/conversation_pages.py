"""A conversation, or another log of an agent, by pages from its file: from its end, from a place in it, and what has a
text in it. A page costs what is on it, however long the conversation is.

A place is an offset in the file, which only grows at its end unless a person edits it.
"""

from __future__ import annotations

import io
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from .. import journal
from ..base import UsageError
from ..journal import Message, ScopeBegun, StepCompleted
from ..state import RowLog
from ..store import Store
from ..views import conversation

PAGE_BYTES = 2 << 20
"""Bytes of rows on a page; a longer row is alone on its page."""

SEARCHED = 32 << 20
"""Bytes that one search reads."""

_CHUNK = 256 << 10
_SEGMENTS = 8 << 20  # bytes of the journal that are read for the calls of a page
_LEAST = 12  # characters of a text that is found in a longer one
_DEPTH = 24
_NOT_SAID = frozenset(
    ("type", "role", "kind", "part_kind", "id", "call_id", "tool_call_id", "tool_use_id", "name", "tool_name", "model")
)
"""Keys of a message whose texts many messages have."""


class SaidRow(Struct, frozen=True):
    """A row of the file, from the place `begin` to `end`. `problem`: why it is none that can be read. Rows that are on
    record and not in the file yet have no place, so both are -1."""

    seq: int
    at: str
    role: str
    content: Any
    begin: int
    end: int
    problem: str = ""


class ConversationPage(Struct, frozen=True):
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
    rows = conversation.follow((), [line for line in log.new_messages if isinstance(line.record, Message)])
    return [
        SaidRow(row.seq, row.at, row.role, msgspec.json.decode(row.content), -1, -1) for row in rows if row.seq > newest
    ]


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


# The file


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


# The calls that have made messages


def calls_of(store: Store, agent: str, rows: Iterable[SaidRow]) -> dict[int, int]:
    """By the `seq` of messages, the record of the call that has made each: that of its scope, made before the message,
    whose result has what it says. Of several with the same result one that was made since the message before it, then
    the first one that has made no other. Of messages whose records are near each other, as those of a page are."""
    said = {row.seq: [*_said(row.content)] for row in rows if row.seq}
    done: dict[str, list[_ResultTexts]] = {}
    found, before = dict[int, int](), dict[str, int]()
    for seq, record in _records(store, max(said, default=0)):
        if isinstance(record, ScopeBegun) and record.agent == agent:
            before[record.scope] = 0
        elif isinstance(record, StepCompleted) and record.agent == agent and len(record.result):
            done.setdefault(record.scope, []).append(_ResultTexts(seq, record.no, _told(record.result)))
        elif isinstance(record, Message) and record.agent == agent and not record.log:
            since, before[record.scope] = before.get(record.scope, 0), record.after
            if seq in said:
                made = (each for each in done.get(record.scope, ()) if each.no <= record.after)
                shared = ((_shared(said[seq], each.told), each) for each in made)
                taken = found.values()
                fits = ((score, each.no > since, each.seq not in taken, -each.seq) for score, each in shared if score)
                if best := max(fits, default=None):
                    found[seq] = -best[3]
    return found


class _ResultTexts(NamedTuple):
    """A call with a result: its record, its number, and the texts of the result."""

    seq: int
    no: int
    told: set[str]


def _said(content: Any) -> Iterator[str]:
    """The texts of a message. JSON that it has as a text is as in a record."""
    for text in texts_in(content, without=_NOT_SAID):
        yield text
        if text[:1] in ("{", "["):
            with suppress(msgspec.MsgspecError, RecursionError):
                yield msgspec.json.encode(msgspec.json.decode(text)).decode()


def _told(result: Raw) -> set[str]:
    """The texts of a result, and it as a whole, which a message may have as a text."""
    texts = texts_in(msgspec.json.decode(result), without=_NOT_SAID)
    return {each for each in (*texts, bytes(result).decode()) if each.strip()}


def _shared(said: Sequence[str], told: set[str]) -> int:
    """How much of what a message says a result has: in characters."""
    found = 0
    for text in said:
        if text in told:
            found += len(text)
        elif len(text) >= _LEAST:
            found += max((len(each) for each in told if len(each) >= _LEAST and each in text), default=0)
    return found


def _records(store: Store, last: int) -> Iterator[tuple[int, Any]]:
    """The records before record `last`, and it, as far as the last segments have them."""
    sizes = [(first, size) for first, size in journal.sizes(store).items() if first <= last]
    chosen, taken = list[int](), 0
    for first, size in reversed(sizes):
        if chosen and taken + size > _SEGMENTS:
            break
        chosen.append(first)
        taken += size
    paths = [journal.segment_path(first) for first in reversed(chosen)]
    store.fetch(paths)
    data = [store.read(path).data for path in paths]
    for each in journal.once(data, first=chosen[-1] if chosen else 1):
        if each.line is None:
            continue
        if each.line.seq > last:
            return
        yield each.line.seq, each.line.record
