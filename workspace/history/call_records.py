"""One call of a step or an effect with all that its records tell: arguments, attempts, costs, answers of people; and
which calls have made the messages of a conversation.

The call that a run has failed at is what a person asks first of a run that has stopped. It is looked up in the last
records, without the whole history.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from ...schemas import nearest
from .. import journal
from ..base import SatchelError, UsageError, moment_of, time_text
from ..journal import (
    ApprovalAnswered,
    ApprovalAsked,
    Doubt,
    Edited,
    Failure,
    Key,
    Line,
    Message,
    OfCall,
    Opened,
    Resolved,
    ScopeBegun,
    Spent,
    StepCompleted,
    StepFailed,
    StepRetry,
    StepStarted,
    first_kept,
    segments,
)
from ..state import ROOT
from ..store import Store
from ..views import SaidRow, texts_in
from .call_history import Call, FailedAttempt, StepHistory, Work, WorkState, failed_attempts
from .moments import Story, no_such_item, read

_AGENT = "_agent"
"""How a person names what is in no item: the folder in steps/ has this name."""

_LAST = 500
"""Records in which the call that a run has failed at is looked for, from the end."""

_SEGMENTS = 8 << 20  # bytes of the journal that are read for the calls of a page of messages
_LEAST = 12  # characters of a text that is found in a longer one
_NOT_SAID = frozenset(
    ("type", "role", "kind", "part_kind", "id", "call_id", "tool_call_id", "tool_use_id", "name", "tool_name", "model")
)
"""Keys of a message whose texts many messages have."""


class HumanAnswer(Struct, frozen=True, omit_defaults=True):
    """What a person has said about a call: an answer to its question or doubt, or an edit of its result."""

    seq: int
    at: str
    by: str
    said: str  # "approve", "done", "edited"
    note: str = ""


class CallDetail(Struct, frozen=True, kw_only=True):
    """A call, and what its records tell.

    `name` is how to name it again: `^3/2`. `arguments` is None if the records have only the preview `call.call`: they
    were long, or have gone. `began` is the time of its first record or, of a call without earlier ones, when its last
    attempt began. `frames`: the lines of the agent's own code that its error came through, outermost first. `model`
    is the fallback that answered, or the one that `run.spend` has named. `records` are all its records. The run right
    before it is at record `before`, right after it at `call.seq`. `said_before` is the record of the last message of
    its agent's conversation that was added before the call was made; 0: none, or its item has not committed.
    `title` and `item_state` are those of its item.
    """

    name: str
    agent: str
    scope: str
    title: str
    item_state: WorkState
    call: Call
    arguments: dict[str, Any] | None = None
    result: Any = None
    began: str = ""
    frames: tuple[str, ...] = ()
    model: str = ""
    answers: tuple[HumanAnswer, ...] = ()
    records: tuple[Line, ...] = ()
    before: int = 0
    said_before: int = 0


def call_detail(found: StepHistory, told: Story, named: str | int) -> CallDetail:
    """The call that `named` means.

    ^3/2, 3-title/2, _name/2    call 2 of this item or named scope, done for the last time; of a sub-agent `AGENT/^3/2`
    _agent/2                    call 2 of what the agent does in no item
    42                          the call that record 42 is about

    UsageError for what names no call. `found`: the work of the run; `told`: its records. Without `result`.
    """
    text = str(named).strip().rstrip("/")
    asked = (line.record for line in told.lines if isinstance(line.record, ApprovalAsked | Doubt))
    questions = {record.id: record.key for record in asked}
    work, call = _of_record(found, told, int(text), questions) if text.isdecimal() else _of_name(found, text)
    lines = [*_records(told.lines, work, call, questions)]
    first = lines[0] if lines else None
    return CallDetail(
        name=call_place(work.agent, work.scope, call.no),
        agent=work.agent,
        scope=work.scope,
        title=work.title,
        item_state=work.state,
        call=call,
        arguments=_arguments(call, lines),
        began=_began(call, first),
        frames=next((line.record.error.where for line in reversed(lines) if type(line.record) is StepFailed), ()),
        model=call.model or next((line.record.model for line in lines if type(line.record) is Spent), ""),
        answers=tuple(_answers(lines)),
        records=tuple(lines),
        before=max(0, first.seq - 1) if first else 0,
        said_before=_said_before(told.lines, work, call, first),
    )


def _said_before(lines: Iterable[Line], work: Work, call: Call, first: Line | None) -> int:
    """Messages are recorded when their scope commits, after its calls: those of the call's own scope say after which
    call they were added."""
    found = 0
    for line in lines:
        record = line.record
        if isinstance(record, Message) and record.agent == work.agent and not record.log:
            is_own = record.scope == work.scope and _is_within(line.seq, work)
            if record.after < call.no if is_own else first is not None and line.seq < first.seq:
                found = line.seq
    return found


def call_place(agent: str, scope: str, no: int) -> str:
    """How a person names a call: `^3/2`, `left/^3/2`."""
    short = scope if scope.startswith("_") else f"^{scope}" if scope else _AGENT
    return f"{agent}/{short}/{no}" if agent else f"{short}/{no}"


def _of_name(found: StepHistory, text: str) -> tuple[Work, Call]:
    above, _, number = text.rpartition("/")
    if not above or not number.isdecimal():
        raise UsageError(
            f"{text!r} names no call", remedy="name its item and its number in `satchel steps`: ^3/2, or a record: 42"
        )
    above = f"^{above}" if above.isdecimal() else above
    agent, _, last = above.rpartition("/")
    if last == _AGENT:
        works = [work for work in found.work if (work.agent, work.scope) == (agent, ROOT)]
    else:
        works = [work for work in found.work if work.scope and above in work.names]
    if not works:
        raise no_such_item(above, (name for each in found.work if each.scope for name in each.names), found.since)
    for work in reversed(works):
        for call in work.calls:
            if call.no == int(number):
                return work, call
    numbers = [*dict.fromkeys(str(call.no) for work in works for call in work.calls)]
    close = nearest(number, numbers)
    raise UsageError(
        f"{above} has no call {number}",
        why=f"its calls are {', '.join(numbers)}" if 0 < len(numbers) < 9 else f"it has {len(numbers):,} calls",
        remedy=f"did you mean {above}/{close}?" if close else "`satchel steps` lists the calls of all items",
    )


def _of_record(found: StepHistory, told: Story, seq: int, questions: dict[str, Key]) -> tuple[Work, Call]:
    line = next((line for line in told.lines if line.seq == seq), None)
    key = _key(line.record, questions) if line else None
    if line is not None and key is not None:
        place = line.record.agent, line.record.scope if isinstance(line.record, OfCall | Spent) else None
        for work in reversed(found.work):
            if work.agent == place[0] and place[1] in (None, work.scope) and _is_within(line.seq, work):
                for call in work.calls:
                    if key in (call.key, call.no):
                        return work, call
    if line is None:
        raise UsageError(f"there is no record {seq:,}", remedy="`satchel log` lists the records that there are")
    raise UsageError(f"record {seq:,} is about no call", remedy="`satchel steps` lists the calls of all items")


def _is_within(seq: int, work: Work) -> bool:
    return work.begun <= seq and (not work.ended or seq <= work.ended)


def _key(record: Any, questions: dict[str, Key]) -> Key | int | None:
    """The key or the number of the call that a record is about. `questions`: the keys of the calls that people were
    asked about, by the names of the questions."""
    match record:
        case OfCall():
            return record.key
        case Spent():
            return record.no
        case ApprovalAnswered() | Resolved():
            return questions.get(record.id)
        case Edited(step=step) if step is not None:
            return step.key
    return None


def _records(lines: Sequence[Line], work: Work, call: Call, questions: dict[str, Key]) -> Iterator[Line]:
    """The records of one call, in their order. A question and its answer are in the agent of the call."""
    for line in lines:
        record: Any = line.record
        if record.agent != work.agent or not _is_within(line.seq, work):
            continue
        if _key(record, questions) not in (call.key, call.no):
            continue
        of = record.step if isinstance(record, Edited) else record
        if getattr(of, "scope", work.scope) == work.scope:
            yield line


def _arguments(call: Call, lines: Sequence[Line]) -> dict[str, Any] | None:
    kept = (
        line.record.arguments
        for line in reversed(lines)
        if isinstance(line.record, StepStarted | StepCompleted | StepFailed) and len(line.record.arguments)
    )
    data = bytes(next(kept, Raw(b""))) or _whole(call.call)
    try:
        found = msgspec.json.decode(data) if data else None
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None


def _whole(preview: str) -> bytes:
    """The arguments of a preview that is not cut: `("a":1)`, or `(name: "a":1)` of a call with a name."""
    text = preview[1:-1]
    for each in (text, *text.split(": ", 1)[1:]):
        try:
            if isinstance(json.loads(f"{{{each}}}"), dict):
                return f"{{{each}}}".encode()
        except ValueError:
            continue
    return b""


def _began(call: Call, first: Line | None) -> str:
    then = moment_of(first.at) if first else None
    if first is None or then is None:
        return ""
    ms = first.record.ms if isinstance(first.record, StepCompleted | StepFailed) else 0
    return time_text(then - timedelta(milliseconds=ms))


def _answers(lines: Iterable[Line]) -> Iterator[HumanAnswer]:
    for line in lines:
        match line.record:
            case ApprovalAnswered(by=by, note=note, decision=decision):
                said = msgspec.json.decode(decision)
                yield HumanAnswer(line.seq, line.at, by, said if isinstance(said, str) else json.dumps(said), note)
            case Resolved(by=by, note=note, outcome=outcome):
                yield HumanAnswer(line.seq, line.at, by, outcome, note)
            case Edited(by=by):
                yield HumanAnswer(line.seq, line.at, by, "edited")


class FailedCall(Struct, frozen=True, kw_only=True):
    """A call whose error has ended the run, or its item. `name` is how a person names it: `^3/2`. `attempts` are all
    that have failed, oldest first, as far back as the look goes."""

    name: str
    step: str
    call: str  # a preview of its arguments
    title: str  # of its item
    seq: int
    attempts: tuple[FailedAttempt, ...]


def failed_call(store: Store, error: Failure) -> FailedCall | None:
    """The call that `error`, the run's own, has come from. None if no call has failed so, or its records can't be
    read."""
    try:
        newest = (segments(store) or [1])[-1]
        lines = read(store, max(newest - 1 - _LAST, first_kept(store) - 1, 0)).lines
    except (SatchelError, OSError):
        return None
    return _among(lines[-_LAST:], error)


def _among(lines: Sequence[Line], error: Failure) -> FailedCall | None:
    found = _with(lines, error) or _newest(lines)
    if found is None:
        return None
    line, record = found
    place = record.agent, record.scope
    begun = (each.record for each in reversed(lines) if isinstance(each.record, ScopeBegun))
    tried = (each for each in lines if isinstance(each.record, StepFailed | StepRetry))
    return FailedCall(
        name=call_place(*place, record.no),
        step=record.step,
        call=record.call,
        title=next((each.title for each in begun if (each.agent, each.scope) == place), ""),
        seq=line.seq,
        attempts=tuple(failed_attempts([each for each in tried if _is_of(each, record)])),
    )


def _with(lines: Sequence[Line], error: Failure) -> tuple[Line, StepFailed] | None:
    """The newest call that has failed with this error."""
    for line in reversed(lines):
        record = line.record
        same = isinstance(record, StepFailed) and (record.error.kind, record.error.message)
        if isinstance(record, StepFailed) and same == (error.kind, error.message):
            return line, record
    return None


def _newest(lines: Sequence[Line]) -> tuple[Line, StepFailed] | None:
    """The newest failed call of the last start, if none has ended well after it: the agent may have raised an error of
    its own because of it."""
    for line in reversed(lines):
        if isinstance(line.record, StepFailed):
            return line, line.record
        if isinstance(line.record, StepCompleted | Opened):
            return None
    return None


def _is_of(line: Line, call: StepFailed) -> bool:
    record = line.record
    return isinstance(record, StepFailed | StepRetry) and (record.agent, record.scope, record.key) == (
        call.agent,
        call.scope,
        call.key,
    )


def calls_of(store: Store, agent: str, rows: Iterable[SaidRow]) -> dict[int, int]:
    """By the `seq` of messages, the record of the call that has made each: that of its scope, made before the message,
    whose result has what it says. Of several with the same result one that was made since the message before it, then
    the first one that has made no other. Of messages whose records are near each other, as those of a page are."""
    said = {row.seq: [*_said(row.content)] for row in rows if row.seq}
    done: dict[str, list[_ResultTexts]] = {}
    found, before = dict[int, int](), dict[str, int]()
    for seq, record in _records_before(store, max(said, default=0)):
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


def _records_before(store: Store, last: int) -> Iterator[tuple[int, Any]]:
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
