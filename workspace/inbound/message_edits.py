"""messages.jsonl: messages changed, removed and inserted, and a conversation that is cut off.

A line is the message of its `seq`; one without it is new. What is missing at the end is no edit, since the run adds
messages there: it is written again, unless a line `{"cut": true}` says that the conversation ends there. The lines of
an edited version are merged with the conversation, and become records.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from ...schemas import Problem, short
from ..base import InvalidFile, Refused, UsageError, decode, is_blank
from ..formats import jsontext
from ..journal import Edited, MessageEdit, now
from ..state import AgentMoment, LogPlace, json_patch
from ..store import LARGE_LIMIT, FileContent, Trace
from ..views import MessageRow, conversation
from .findings import EDIT_BYTES, ConversationText, Edit, Looking, RejectedFile, mark_of

CUT = b'{"cut": true}\n'
"""The line after which nothing stays."""

_TOLD = 8
_KEYS = ("seq", "at", "role", "content")
_CUT = {"cut": True}
_NEW = "Leave out `seq` of a message that is new"


def look(looking: Looking, agent: AgentMoment) -> None:
    for place in agent.row_logs:
        _look(looking, agent, place)


def _look(looking: Looking, agent: AgentMoment, place: LogPlace) -> None:
    key, path, log = place
    noticed = looking.noticed
    if looking.held is not None and path not in looking.held:
        return
    if not log.new_messages and looking.is_as_listed(path):
        noticed.versions[path] = looking.listed[path]
        return
    found = looking.held[path] if looking.held else conversation.read(looking.store, path)
    data = found.data if found else b""
    if conversation.of_file(log, data) != data:
        found = looking.steady(path, limit=LARGE_LIMIT)
        data = found.data if found else b""
    if found:
        noticed.versions[path] = found.version
    whole = conversation.of_file(log, data)
    if whole is None:
        whole = conversation.encode(conversation.checked(place, looking.conversations(key)[-1]))
    noticed.conversations[key] = ConversationText(whole, is_there=data == whole)
    if data != whole and log is agent:
        _judge(looking, agent, path, data, whole, looking.store.trace(path))
    elif data != whole and not is_blank(data) and not whole.startswith(data.split(b"\0", 1)[0]):
        error = Refused(
            "was changed by hand", path=path, why="a program adds its rows, and reads them by their numbers"
        )
        noticed.overruled.append(RejectedFile(path, error, data))


class CutOff(NamedTuple):
    """A content of messages.jsonl that cuts the conversation off, to be saved in place of `there`, and what that would
    do; nothing if there is nothing to cut."""

    data: bytes
    there: FileContent | None
    says: tuple[str, ...]


def cut_off(looking: Looking, agent: AgentMoment, after: int) -> CutOff:
    """The conversation, with a person's edit of it that is not taken yet, cut off after the message `after`, or from
    its beginning if that is 0. Refused or InvalidFile if the run could not take that, UsageError if there is no such
    message."""
    path, noticed = agent.folder + conversation.NAME, looking.noticed
    there = conversation.read(looking.store, path)
    look(looking, agent)
    for refusal in noticed.refusals:
        raise refusal.error
    whole = noticed.conversations[agent.path].data
    lines = (there.data if there and noticed.edits else whole).splitlines(keepends=True)
    numbers = [0, *map(_number, lines)]
    if after not in numbers:
        raise UsageError(f"has no message {after}", path=path, remedy="`seq` of each line is its number")
    at = numbers.index(after)
    cut = [line for line, number in zip(lines[at:], numbers[at + 1 :], strict=True) if number > 0]
    data = b"".join([*lines[:at], CUT, *cut])  # what is cut shows that it is not the same cut again
    noticed.edits.clear()
    _judge(looking, agent, path, data, whole, Trace("", now()))
    for refusal in noticed.refusals:
        raise refusal.error
    return CutOff(data, there, tuple(say for edit in noticed.edits for say in edit.record.says))


def _number(line: bytes) -> int:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return -1
    seq = found.get("seq") if isinstance(found, dict) else None
    return seq if type(seq) is int and seq > 0 else -1


def _judge(looking: Looking, agent: AgentMoment, path: str, data: bytes, whole: bytes, trace: Trace) -> None:
    if whole.startswith(data.split(b"\0", 1)[0]):  # what a power failure took is a hole or the end
        if len(data.rstrip(b"\0")) < agent.messages_at.bytes:
            was = "empty" if is_blank(data) and path in looking.noticed.versions else "cut off" if data else "missing"
            looking.find(path, f"was {was}; it is restored")
        return
    if is_blank(data):
        looking.find(path, "was empty; it is restored")
    elif looking.is_merged(agent, path, mark_of(data, trace)):
        looking.find(path, "contains an edit that was merged before; Satchel writes the file again")
    elif path in agent.edits and _is_older(looking, agent, data):
        looking.find(path, "was older than the last edit of it; Satchel writes the file again")
    else:
        try:
            _edited(looking, agent, path, data, conversation.decode(whole), trace)
        except (InvalidFile, Refused) as error:
            looking.refuse(path, error, None if looking.moment.is_new else data)  # there is none to restore


def _is_older(looking: Looking, agent: AgentMoment, data: bytes) -> bool:
    """Whether it is as the run wrote it before an edit."""
    return any(conversation.encode(rows).startswith(data) for rows in looking.conversations(agent.path)[:-1])


# A version that a person has edited


class _Said(NamedTuple):
    """A line of the file. `seq` is 0 of a new message."""

    number: int
    seq: int
    role: str
    content: Raw

    def is_same(self, row: MessageRow) -> bool:
        return self.role == row.role and _is_same(self.content, row.content)


class _Place(NamedTuple):
    """A message of the conversation afterwards: a row of it before, a line of the file, or both."""

    row: MessageRow | None
    said: _Said | None

    @property
    def content(self) -> Any:
        """Where both have the same, the line's layout does not count."""
        found = self.said.content if self.said is not None else self.row.content if self.row is not None else b"null"
        return msgspec.json.decode(found)

    @property
    def name(self) -> str:
        if self.said is not None:
            return f"line {self.said.number}"
        return f"message {self.row.seq if self.row is not None else ''}, which the file leaves out at its end"


class _File(NamedTuple):
    """What a file says: its lines before a cut, or all, and the new ones after it."""

    lines: list[_Said]
    is_cut: bool
    after: list[_Said]
    torn: bytes  # a last line that is not complete
    torn_at: int


def _edited(looking: Looking, agent: AgentMoment, path: str, data: bytes, rows: list[MessageRow], trace: Trace) -> None:
    """The finding about a file that differs from the conversation `rows`: an edit, or nothing new. Refused or
    InvalidFile for one that can't be taken. `trace`: who has saved it, and when."""
    noticed = looking.noticed
    file = _read(looking, path, data, {row.seq: row for row in rows}, _moved_half(looking, agent, path))
    places, removed = _merged(file, rows, lambda number: _has_come_since(looking, agent, rows, number, trace.at))
    along = list[MessageRow]()
    _keep_calls_whole(path, rows, places, along)
    records = [*_records(rows, places, removed, along, file.is_cut)]
    is_known = any(conversation.encode([row]).startswith(file.torn) for row in rows)
    if file.torn and not is_known:
        if records:
            raise InvalidFile(path, [_torn(file.torn_at)])
        error = Refused("ended with an incomplete line, which is no message", path=path)
        noticed.overruled.append(RejectedFile(path, error, data))
    if not records:
        text = "was changed but has the same content as the run; Satchel writes the file again"
        looking.find(path, text, settles=True)
        return
    for number, (edits, says) in enumerate(records, 1):
        # Only the last has it: if a crash cuts them short, the rest is found again.
        digest = mark_of(data, trace) if number == len(records) else ""
        record = Edited(
            agent=agent.path, file=path, by=trace.by, saved=trace.at, sha=digest, messages=tuple(edits), says=says
        )
        noticed.edits.append(Edit(record))


def _has_come_since(looking: Looking, agent: AgentMoment, rows: Sequence[MessageRow], number: int, saved: str) -> bool:
    """Whether the run has added this message after the file was saved, so that a cut in it can't mean it. After a crash
    the times tell, to the second."""
    if looking.held is not None:
        return number >= len(rows) - agent.left_out - len(agent.new_messages)
    return not looking.moment.clean and bool(saved) and rows[number].at[:19] > saved[:19]


def _moved_half(looking: Looking, agent: AgentMoment, path: str) -> set[int]:
    """The messages that the last edit has removed, if a crash has cut its records short: what the file still has of
    them was moved, or is behind a cut."""
    if agent.edits.get(path) != "":
        return set()
    *_, before, now = [[], *looking.conversations(agent.path)]
    return {row.seq for row in before} - {row.seq for row in now}


# The lines


def _read(looking: Looking, path: str, data: bytes, known: dict[int, MessageRow], moved: set[int]) -> _File:
    lines, after, problems = list[_Said](), list[_Said](), list[Problem]()
    cut_at, torn, torn_at, seen = 0, b"", 0, dict[int, int]()
    texts = decode(data.rstrip(b"\0"), path).split("\n")  # a power failure has left a hole at the end
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            value = jsontext.load(text, path)
        except InvalidFile as error:
            if number == len(texts):
                torn, torn_at = text.encode(), number
            else:
                problems += _no_json(text, number, error)
            continue
        if isinstance(value, dict) and "cut" in value:
            problems += _wrong_cut(value, number, cut_at)
            cut_at = number
            continue
        wrong = [*_wrong(value, number, known, moved, seen)]
        problems += wrong
        if not wrong:
            content = json.dumps(value["content"], ensure_ascii=False, separators=(",", ":")).encode()
            seq = value.get("seq", 0)
            seq = seq if seq in known or cut_at else 0
            said = _Said(number, seq, value["role"], Raw(looking.redactor.json(content)))
            (after if cut_at else lines).append(said)
    if problems:
        raise InvalidFile(path, problems[:_TOLD])
    return _File(lines, bool(cut_at), [each for each in after if not each.seq], torn, torn_at)


def _no_json(text: str, number: int, error: InvalidFile) -> Iterator[Problem]:
    """A line that is no JSON: a text, or a message over several lines."""
    if not text.lstrip().startswith("{"):
        remedy = 'Each message is one line, such as {"role": "user", "content": "..."}'
        yield Problem(f"line {number}", short(text.strip()), "one message as JSON", remedy)
        return
    for each in error.problems[:1]:
        remedy = ". ".join([*([each.remedy] if each.remedy else []), "Each message is one line"])
        yield each._replace(place=_placed(each.place, number), remedy=remedy)


def _placed(place: str, number: int) -> str:
    """`line 1, column 5` of one line, as a place in the file."""
    return f"line {number}{place.removeprefix('line 1')}" if place.startswith("line 1") else f"line {number}, {place}"


def _torn(number: int) -> Problem:
    return Problem(f"line {number}", "the beginning of a line", "one message as JSON", "Finish the line, or remove it")


def _wrong_cut(value: dict[str, Any], number: int, cut_at: int) -> Iterator[Problem]:
    if not json_patch.same(value, _CUT):
        remedy = "Write this line alone, after the last message that stays"
        yield Problem(f"line {number}", short(value), '{"cut": true}', remedy)
    elif cut_at:
        yield Problem(f"line {number}", "a second cut", f"only the one in line {cut_at}", "Remove one of them")


def _wrong(
    value: Any, number: int, known: dict[int, MessageRow], moved: set[int], seen: dict[int, int]
) -> Iterator[Problem]:
    """What is wrong with one line. `moved`: see `_moved_half`; `seen`: the lines of the messages before it."""
    place = f"line {number}"
    if not isinstance(value, dict):
        yield Problem(place, short(value), "one message", 'Write {"role": ..., "content": ...}')
        return
    for key in value:
        if key not in _KEYS:
            yield Problem(place, f"the key {short(key)}", "role and content", "Put it inside `content`, or remove it")
    if not isinstance(value.get("role"), str):
        found = short(value["role"]) if "role" in value else "no role"
        yield Problem(f"{place} (role)", found, "who speaks, as text", "Write user, assistant or tool")
    if "content" not in value:
        yield Problem(f"{place} (content)", "no content", "what is said", "To remove a message, remove its line")
    elif len(json.dumps(value["content"])) > EDIT_BYTES:
        yield Problem(f"{place} (content)", "too much text", f"at most {EDIT_BYTES:,} bytes", "Shorten it")
    if "seq" not in value:
        return
    seq = value["seq"]
    row = known.get(seq) if type(seq) is int else None
    if type(seq) is int and seq in moved:
        return
    if row is None:
        yield Problem(f"{place} (seq)", short(seq), "that of a message of this conversation", _NEW)
    elif seq in seen:
        yield Problem(f"{place} (seq)", f"{seq}, which line {seen[seq]} has, too", "another", _NEW)
    elif value.get("at", row.at) != row.at:
        yield Problem(f"{place} (at)", short(value["at"]), short(row.at), "It says when the message came: put it back")
    if row is not None:
        seen.setdefault(seq, number)


# The merge


def _merged(
    file: _File, rows: Sequence[MessageRow], has_come_since: Callable[[int], bool]
) -> tuple[list[_Place], list[MessageRow]]:
    """The conversation afterwards, and the rows that are removed."""
    numbers = {row.seq: number for number, row in enumerate(rows)}
    in_order = _in_order([numbers[each.seq] for each in file.lines if each.seq])
    moved = {numbers[each.seq] for each in file.lines if each.seq} - in_order
    at: list[int | None] = [
        number if each.seq and (number := numbers[each.seq]) in in_order else None for each in file.lines
    ]
    _match_equal(file.lines, at, rows, moved)
    matched = {number for number in at if number is not None}
    last = max(matched, default=-1)
    removed = [
        number
        for number in range(len(rows))
        if number in moved
        or (number not in matched and (number < last or (file.is_cut and not has_come_since(number))))
    ]
    gone, places = {*removed, *matched}, list[_Place]()
    trailing = list[_Place]()
    for said, place in zip(file.lines, at, strict=True):
        if place is not None:
            places += [*trailing, _Place(rows[place], said)]
            trailing = []
        else:
            trailing.append(_Place(None, said))
    places += [_Place(row, None) for number, row in enumerate(rows) if number not in gone]
    places += [*trailing, *(_Place(None, said) for said in file.after)]
    return places, [rows[number] for number in removed]


def _in_order(numbers: Sequence[int]) -> set[int]:
    """The most of them that ascend: the others were moved."""
    ends, at, before = list[int](), list[int](), list[int]()
    for place, number in enumerate(numbers):
        where = bisect_left(ends, number)
        before.append(at[where - 1] if where else -1)
        ends[where : where + 1], at[where : where + 1] = [number], [place]
    found, place = set[int](), at[-1] if at else -1
    while place >= 0:
        found.add(numbers[place])
        place = before[place]
    return found


def _match_equal(lines: Sequence[_Said], at: list[int | None], rows: Sequence[MessageRow], moved: set[int]) -> None:
    """A line without `seq` that says the same as a message which is missing at its place is that message: its number
    was not known yet when the file was saved, or was left out."""
    previous = -1
    for place, said in enumerate(lines):
        if at[place] is None:
            end = next((number for number in at[place:] if number is not None), len(rows))
            same = (each for each in range(previous + 1, end) if each not in moved and said.is_same(rows[each]))
            at[place] = next(same, None)
        previous = previous if (number := at[place]) is None else number


def _is_same(one: Raw, other: Raw) -> bool:
    return one == other or json_patch.same(msgspec.json.decode(one), msgspec.json.decode(other))


# Calls of tools and their results


def _keep_calls_whole(path: str, rows: Sequence[MessageRow], places: list[_Place], along: list[MessageRow]) -> None:
    """Remove results whose call was removed, into `along`. InvalidFile if a message with such a result says more, if a
    result stays without its call, or a call without the result that it had."""
    before = [_Place(row, None) for row in rows]
    had_calls, had_results, had_orphans = _mentioned(before)
    calls, _, orphans = _mentioned(places)
    problems = list[Problem]()
    for place in [each for each in places if {*_results(each.content)} & orphans - had_orphans]:
        results = {*_results(place.content)}
        is_gone = results <= (orphans - had_orphans) & had_calls - calls
        is_unsaid = place.said is None or (place.row is not None and place.said.is_same(place.row))
        if is_gone and is_unsaid and place.row is not None and conversation.is_only_results(place.content):
            places.remove(place)
            along.append(place.row)
            continue
        id = min(results & (orphans - had_orphans))
        remedy = "Remove it, too, or keep the call"
        problems.append(Problem(place.name, f"the result of the call {short(id)}", "that call before it", remedy))
    calls, results, _ = _mentioned(places)
    for place in places:
        for id in _calls(place.content):
            if id in had_calls & had_results and id not in results:
                remedy = "Keep its result, or remove the call, too"
                problems.append(Problem(place.name, f"the call {short(id)}", "its result after it", remedy))
    if problems:
        raise InvalidFile(path, problems[:_TOLD])


def _mentioned(places: Iterable[_Place]) -> tuple[set[str], set[str], set[str]]:
    """The calls, the results, and the results without a call before them."""
    calls, results, orphans = set[str](), set[str](), set[str]()
    for place in places:
        for what, id in conversation.mentions(place.content):
            if what == "call":
                calls.add(id)
            else:
                results.add(id)
                orphans |= {id} - calls
    return calls, results, orphans


def _results(content: Any) -> Iterator[str]:
    return (id for what, id in conversation.mentions(content) if what == "result")


def _calls(content: Any) -> Iterator[str]:
    return (id for what, id in conversation.mentions(content) if what == "call")


# What is recorded


def _records(
    rows: Sequence[MessageRow],
    places: Sequence[_Place],
    removed: Sequence[MessageRow],
    along: Sequence[MessageRow],
    is_cut: bool,
) -> Iterator[tuple[list[MessageEdit], tuple[str, ...]]]:
    """The changes: all removals in one record, and one for each text."""
    if removed or along:
        edits = [MessageEdit(seq=row.seq) for row in (*removed, *along)]
        yield edits, (*_say_removed(rows, places, removed, is_cut=is_cut), *map(_say_along, along[:_TOLD]))
    for row, said in places:
        if row is not None and said is not None and not said.is_same(row):
            edit = MessageEdit(seq=row.seq, role=said.role, content=said.content)
            was = "" if said.role == row.role else f", which was of {row.role}"
            yield [edit], (f"message {row.seq} ({said.role}){was} now says {_shown(said.content)}",)
    before = 0
    new = list[tuple[_Said, int]]()
    for row, said in reversed(places):
        if row is not None:
            before = row.seq
        elif said is not None:
            new.append((said, before))
    for said, before in reversed(new):
        edit = MessageEdit(before=before, role=said.role, content=said.content)
        where = f"before message {before}" if before else "at the end"
        yield [edit], (f"a new message of {said.role} {where}: {_shown(said.content)}",)


def _say_removed(
    rows: Sequence[MessageRow], places: Sequence[_Place], removed: Sequence[MessageRow], *, is_cut: bool
) -> Iterator[str]:
    if is_cut and len(removed) > 1 and [*removed] == [*rows[-len(removed) :]]:
        after = f"after message {rows[-len(removed) - 1].seq}" if len(removed) < len(rows) else "of the conversation"
        yield f"{len(removed)} messages {after} are cut off"
        return
    for row in removed[:_TOLD]:
        yield f"message {row.seq} ({row.role}: {_shown(row.content)}) is removed"
    if len(removed) > _TOLD:
        yield f"and {len(removed) - _TOLD} more messages are removed"


def _say_along(row: MessageRow) -> str:
    return f"message {row.seq}, the result of a call that is removed, is removed with it"


def _shown(content: Raw) -> str:
    value = msgspec.json.decode(content)
    return short(value if isinstance(value, str) else bytes(content).decode())
