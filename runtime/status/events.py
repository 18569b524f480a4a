"""What happens in a run, as typed events: each is a durable record, except `Tokens` and `RunEnded`.

`satchel.stream` and `Handle.events` yield them, read from the storage of a run, by any process on any machine that can
read it. `match` tells them apart:

    match event:
        case events.Tokens(text=text): print(text, end="")
        case events.StepCompleted(step=step, ms=ms): ...
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from ...workspace import journal
from ...workspace.inspect import define
from ...workspace.journal import (
    ApprovalAnswered,
    ApprovalAsked,
    Before,
    Closed,
    Doubt,
    EndStatus,
    Failure,
    Line,
    OfCall,
    Opened,
    Resolved,
    ScopeBegun,
    ScopeCommitted,
    ScopeFailed,
    StepRetry,
    StepStarted,
)
from ...workspace.state import OVER, ROOT, Moment, checkpoint, folder_of_agent
from ...workspace.store import Entry, Store
from ...workspace.views import DOUBTS, PARTIALS, PartialHead, partial_files
from ..execution import Outcome
from .place import REMOTE_LOOK, Place


class Event(Struct, frozen=True, kw_only=True, tag_field="type", tag=str):
    """The base of all. `seq` is the number of the record, for `events(after=seq)`; `at` its time (UTC, ISO 8601);
    `agent` the path of a sub-agent, empty for the root. `msgspec.json.encode(event)` is its JSON, with its `type`."""

    is_durable = True

    seq: int
    at: str
    agent: str = ""


class RunStarted(Event, frozen=True, kw_only=True):
    """A process has opened the run to work on it. `after_crash`: the one before it had not closed it.

    `trace` tells the run from all others: 32 hexadecimal digits, for the id of its trace. A copy has the same one, a
    fork its own. `opening` tells this start from all others, and `before` is that of the start before it."""

    run_id: str
    host: str
    pid: int
    after_crash: bool = False
    trace: str = ""
    opening: str = ""
    before: str = ""


class RunStopped(Event, frozen=True, kw_only=True):
    """The process has closed the run. `result` is what the agent of a completed run has returned, as a JSON value; None
    for a large one, which `Handle.result` has."""

    status: EndStatus
    reason: str = ""
    error: str = ""
    until: str = ""  # when a sleeping run wakes
    result: Any = None


class RunEnded(Event, frozen=True, kw_only=True):
    """The last event of `satchel.stream`: this process has ended its work. No record."""

    is_durable = False

    outcome: Outcome


class ItemBegun(Event, frozen=True, kw_only=True):
    """An item has begun, or a named scope (`_NAME`)."""

    scope: str
    title: str


class ItemFailed(Event, frozen=True, kw_only=True):
    """Its function has raised. It may be tried again."""

    scope: str
    title: str
    error: str


class ItemCommitted(Event, frozen=True, kw_only=True):
    """It has committed: its state, its tick, its result and its outputs. `skipped` is why it was cancelled."""

    scope: str
    title: str
    changes: int = 0  # of the state
    outputs: tuple[str, ...] = ()
    result: Any = None  # None for a large one
    skipped: str | None = None


class StepEvent(Event, frozen=True, kw_only=True):
    """The base of what happens to a call of a step or an effect. `call` is a preview of its arguments."""

    scope: str
    no: int  # its number in the scope
    step: str
    call: str = ""


class EffectBegun(StepEvent, frozen=True, kw_only=True):
    """An effect is about to begin. The beginning of a step is not recorded."""


class StepCompleted(StepEvent, frozen=True, kw_only=True):
    """It has returned. `result` is a JSON value; None for a large one."""

    effect: bool = False
    result: Any = None
    ms: int = 0
    how: str = "returned"
    model: str = ""  # the fallback that has answered


class StepFailed(StepEvent, frozen=True, kw_only=True):
    """An attempt has raised. `final`: the agent gets the exception."""

    error: str
    attempt: int = 1
    final: bool = False


class StepRetried(StepEvent, frozen=True, kw_only=True):
    """It has failed, and is tried again in `wait` seconds."""

    error: str
    attempt: int  # that has failed
    wait: float


class Spent(Event, frozen=True, kw_only=True):
    """The agent has reported a cost (`run.spend`). In a step `no` is the number of the call, which has returned then.
    `output_tokens` are those of the `tokens` that the `model` has written."""

    scope: str
    no: int | None = None
    tokens: int = 0
    usd: float = 0.0
    output_tokens: int = 0
    model: str = ""


class Tokens(StepEvent, frozen=True, kw_only=True):
    """A streamed step has written `text`, which begins at character `offset` of its answer. Not durable: a crash may
    cut it off, and `offset` is smaller again when an attempt starts again. `seq` is the record before it."""

    is_durable = False

    text: str
    offset: int
    attempt: int = 1


class Asked(Event, frozen=True, kw_only=True):
    """A person is asked: by the agent, or about an effect in doubt."""

    id: str
    kind: Literal["approval", "effect"]
    question: str
    choices: tuple[str, ...] = ()
    arguments: Any = None


class Answered(Event, frozen=True, kw_only=True):
    """The question is answered. `decision` is a JSON value; about an effect `done`, `not_done` or `new`.
    `arguments` are those that the answer changes."""

    id: str
    decision: Any
    by: str
    arguments: Any = None


class PauseRequested(Event, frozen=True, kw_only=True):
    """The run is to stop at its next safe point."""

    reason: str
    by: str
    mode: str
    until: str = ""


class Paused(Event, frozen=True, kw_only=True):
    """The pause is in force. `forced`: running work was cut off."""

    forced: bool = False


class Resumed(Event, frozen=True, kw_only=True):
    """A pause is over."""

    by: str
    instructions: str = ""


class AgentBegun(Event, frozen=True, kw_only=True):
    """The sub-agent `agent` was spawned, in the scope `scope` of its parent; empty outside of scopes."""

    scope: str
    call: str = ""


class AgentEnded(Event, frozen=True, kw_only=True):
    """The sub-agent has returned, or raised."""

    result: Any = None
    error: str = ""


class PlanChanged(Event, frozen=True, kw_only=True):
    """The plan has other items."""

    by: str
    why: str = ""


class Edited(Event, frozen=True, kw_only=True):
    """A person has changed a file. `says` is what, in words."""

    file: str
    by: str
    says: tuple[str, ...] = ()


class TaskTaken(Event, frozen=True, kw_only=True):
    """A file of the inbox was given to the agent."""

    id: str
    file: str


class TaskDone(Event, frozen=True, kw_only=True):
    """The agent has done the task."""

    id: str


class Teller:
    """The events of records that come in their order, from where a moment is."""

    def __init__(self, moment: Moment | None = None):
        self.seq = moment.seq if moment else 0
        self.status: str = moment.status if moment else "new"
        self.agents = [*moment.agents] if moment else [""]
        self.nonce = moment.run_nonce if moment else ""
        self.openings = ("", moment.ran if moment else "")  # of the last two starts
        self._open = {
            (path, key): (scope.title, {scope.numbers[call] for call in scope.done})
            for path, agent in (moment.agents if moment else {}).items()
            for key, scope in agent.scopes.items()
        }  # the title of each open scope, and the numbers of its finished calls

    def of(self, line: Line) -> Iterator[Event]:
        """At most one event; none of a record that only Satchel needs."""
        self.seq = line.seq
        self._follow(line)
        tell = _TOLD.get(type(line.record))
        facts = tell(line.record, self) if tell is not None else None
        if facts is not None:
            kind, more = facts
            yield kind(seq=line.seq, at=line.at, agent=line.record.agent, **more)
        if isinstance(line.record, ScopeCommitted) and line.record.scope != ROOT:
            self._open.pop((line.record.agent, line.record.scope), None)

    def tokens(self, head: PartialHead, text: str, offset: int, at: str = "") -> Iterator[Tokens]:
        """New text of a streamed step, unless the step has returned."""
        if text and not self._has_returned(head):
            yield Tokens(
                seq=self.seq,
                at=at or head.at,
                agent=head.agent,
                scope=head.scope,
                no=head.no,
                step=head.step,
                call=head.call,
                text=text,
                offset=offset,
                attempt=head.attempt,
            )

    def title(self, record: Any) -> str:
        """Of the scope that a record is about."""
        return self._open.get((record.agent, record.scope), ("", set()))[0]

    def _has_returned(self, head: PartialHead) -> bool:
        return head.no in self._open.get((head.agent, head.scope), ("", set()))[1]

    def _follow(self, line: Line) -> None:
        match line.record:
            case ScopeBegun() as begun:
                self._open.setdefault((begun.agent, begun.scope), (begun.title, set()))
            case journal.StepCompleted() as done:
                self._open.setdefault((done.agent, done.scope), ("", set()))[1].add(done.no)
            case journal.AgentBegun(agent=path) if path not in self.agents:
                self.agents.append(path)
            case Opened() as opened:
                self.nonce = opened.run_nonce or self.nonce
                if opened.why in _STARTS:
                    self.openings = (self.openings[1], line.opening)
                self.status = "running" if opened.why == "run" else self.status
            case Closed(status=str(status)):
                self.status = status


_STARTS = ("run", "replay")

_Facts = tuple[type[Event], dict[str, Any]]


def _value(raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw) if len(raw) else None
    except (msgspec.MsgspecError, RecursionError):
        return None  # `check` says what is wrong with it


def _error(failure: Failure | None) -> str:
    return f"{failure.kind}: {failure.message}" if failure else ""


def _call(record: OfCall) -> dict[str, Any]:
    return {"scope": record.scope, "no": record.no, "step": record.step, "call": record.call}


def _opened(record: Opened, teller: Teller) -> _Facts | None:
    if record.why not in _STARTS:
        return None
    secret = teller.nonce or record.run_id  # others derive keys and names from it
    return RunStarted, {
        "run_id": record.run_id,
        "host": record.host,
        "pid": record.pid,
        "after_crash": record.found == "crash",
        "trace": hashlib.sha256(f"satchel trace {secret}".encode()).hexdigest()[:32],
        "opening": teller.openings[1],
        "before": teller.openings[0],
    }


def _closed(record: Closed, teller: Teller) -> _Facts | None:
    if record.status is None:
        return None
    return RunStopped, {
        "status": record.status,
        "reason": record.reason,
        "error": _error(record.error),
        "until": record.until,
        "result": _value(record.result),
    }


def _committed(record: ScopeCommitted, teller: Teller) -> _Facts | None:
    if record.scope == ROOT:
        return None  # the first state of an agent
    return ItemCommitted, {
        "scope": record.scope,
        "title": teller.title(record),
        "changes": len(record.patch),
        "outputs": tuple(record.outputs),
        "result": _value(record.result),
        "skipped": record.cancelled,
    }


def _begun(record: ScopeBegun, teller: Teller) -> _Facts | None:
    facts = {"scope": record.scope, "title": record.title}
    return (ItemBegun, facts) if record.scope != ROOT else None


_TOLD: dict[type, Callable[[Any, Teller], _Facts | None]] = {
    Opened: _opened,
    Closed: _closed,
    ScopeBegun: _begun,
    ScopeFailed: lambda record, teller: (
        ItemFailed,
        {"scope": record.scope, "title": teller.title(record), "error": _error(record.error)},
    ),
    ScopeCommitted: _committed,
    StepStarted: lambda record, teller: (EffectBegun, _call(record)),
    journal.StepCompleted: lambda record, teller: (
        StepCompleted,
        _call(record)
        | {"effect": record.effect, "result": _value(record.result), "ms": record.ms, "how": record.how}
        | {"model": record.model},
    ),
    journal.StepFailed: lambda record, teller: (
        StepFailed,
        _call(record) | {"error": _error(record.error), "attempt": record.attempt, "final": record.final},
    ),
    StepRetry: lambda record, teller: (
        StepRetried,
        _call(record) | {"error": _error(record.error), "attempt": record.attempt, "wait": record.wait},
    ),
    journal.Spent: lambda record, teller: (
        Spent,
        {"scope": record.scope, "no": record.no, "tokens": record.tokens, "usd": record.usd}
        | {"output_tokens": record.output, "model": record.model},
    ),
    ApprovalAsked: lambda record, teller: (
        Asked,
        {"id": record.id, "kind": "approval", "question": record.question, "choices": record.choices}
        | {"arguments": _value(record.arguments)},
    ),
    Doubt: lambda record, teller: (
        Asked,
        {"id": record.id, "kind": "effect", "question": f"{record.step}{record.call}: {DOUBTS[record.why]}"},
    ),
    ApprovalAnswered: lambda record, teller: (
        Answered,
        {"id": record.id, "decision": _value(record.decision), "by": record.by, "arguments": _value(record.arguments)},
    ),
    Resolved: lambda record, teller: (Answered, {"id": record.id, "decision": record.outcome, "by": record.by}),
    journal.PauseRequested: lambda record, teller: (
        PauseRequested,
        {"reason": record.reason, "by": record.by, "mode": record.mode, "until": record.until},
    ),
    journal.Paused: lambda record, teller: (Paused, {"forced": record.forced}),
    journal.Resumed: lambda record, teller: (Resumed, {"by": record.by, "instructions": record.instructions}),
    journal.AgentBegun: lambda record, teller: (AgentBegun, {"scope": record.scope, "call": record.call}),
    journal.AgentEnded: lambda record, teller: (
        AgentEnded,
        {"result": _value(record.result), "error": _error(record.error)},
    ),
    journal.PlanChanged: lambda record, teller: (PlanChanged, {"by": record.by, "why": record.why}),
    journal.Edited: lambda record, teller: (Edited, {"file": record.file, "by": record.by, "says": record.says}),
    journal.TaskTaken: lambda record, teller: (TaskTaken, {"id": record.id, "file": record.file}),
    journal.TaskDone: lambda record, teller: (TaskDone, {"id": record.id}),
}
"""The event of each type of record that has one, with its facts."""


_LOOK = 0.1
"""Seconds between two looks on a disk."""

_SHARE = 4
"""A look is followed by a rest that is so many times as long, whatever it has cost."""

_READ_LIMIT = 64 << 20


async def follow(place: Place, after: int, *, follows: bool) -> AsyncGenerator[Event, None]:
    """The events after record `after`. With `follows` also those to come, until the run is over for good."""
    store = place.store_of_a_run()  # its own where it has a listing: it is used in other threads
    follower = _Follower(store, after)
    await asyncio.to_thread(define, store)  # UsageError if there is no workspace
    shortest = REMOTE_LOOK if store.abilities.remote else _LOOK
    while True:
        began = time.monotonic()
        found = await asyncio.to_thread(follower.look, follows)
        took = time.monotonic() - began
        for event in found:
            yield event
        if not follows or follower.is_over:
            return
        await asyncio.sleep(max(shortest, _SHARE * took))


class _Follower:
    """What was read so far."""

    def __init__(self, store: Store, after: int):
        self._store, self._after = store, after
        self._teller = Teller()
        self._before = Before()
        self._sizes: dict[int, int] | None = None
        self._partials: dict[str, tuple[Entry, int, str]] = {}  # with the attempt and the text that was told

    @property
    def is_over(self) -> bool:
        """Whether the run is completed or cancelled."""
        return self._teller.status in OVER

    def look(self, streams: bool) -> list[Event]:
        """The events since the last look. In a thread."""
        self._store.refresh()
        # First the text: what has returned meanwhile is told after it.
        found: list[Event] = [*self._tokens()] if streams else []
        sizes = journal.sizes(self._store)
        if sizes == self._sizes:
            return found
        if not self._teller.seq:
            self._begin()
        for line in journal.read(self._store, after=self._teller.seq, before=self._before).lines:
            found += [event for event in self._teller.of(line) if event.seq > self._after]
            self._before = line.before
        self._sizes = sizes
        return found

    def _begin(self) -> None:
        """Where the journal does: with a checkpoint, if older records are pruned."""
        kept = journal.first_kept(self._store)
        paths = [path for path in checkpoint.paths(self._store) if checkpoint.position_of(path) >= kept - 1]
        if kept == 1 or not paths:
            return
        moment, _ = checkpoint.load(self._store, paths[0])
        if self._after and self._after < moment.seq:
            raise journal.gone(self._after + 1, moment.seq + 1)
        self._teller, self._before = Teller(moment), moment.before

    def _tokens(self) -> Iterator[Event]:
        there = set()
        for agent in self._teller.agents:
            for folder in self._store.folders(f"{folder_of_agent(agent)}{PARTIALS}"):
                for entry in self._store.list(folder):
                    there.add(entry.path)
                    yield from self._tokens_of(entry)
        for path in self._partials.keys() - there:
            del self._partials[path]

    def _tokens_of(self, entry: Entry) -> Iterator[Event]:
        known, attempt, told = self._partials.get(entry.path, (None, 0, ""))
        if entry == known:
            return
        try:
            parsed = partial_files.parse_partial(self._store.read(entry.path, limit=_READ_LIMIT).data)
        except FileNotFoundError:
            return  # its step has returned meanwhile
        if parsed is None or parsed.damaged or parsed.edited:
            return  # a crash has left it, or a person has saved it: the next opening says what of it counts
        head, text = parsed.head, parsed.text
        begins = len(told) if head.attempt == attempt and text.startswith(told) else 0
        self._partials[entry.path] = entry, head.attempt, text
        yield from self._teller.tokens(head, text[begins:], begins)
