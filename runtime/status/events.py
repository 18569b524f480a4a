"""What happens in a run, as typed events: each is a durable record, except `Tokens` and `RunEnded`.

`satchel.stream` and `Handle.events` yield them. `match` tells them apart:

    match event:
        case events.Tokens(text=text): print(text, end="")
        case events.StepCompleted(step=step, ms=ms): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from ...workspace.journal import records
from ...workspace.journal.records import EndStatus, Line
from ...workspace.state import ROOT, Moment
from ...workspace.views import DOUBTS, PartialHead
from ..execution import Outcome


class Event(Struct, frozen=True, kw_only=True, tag_field="type", tag=str):
    """The base of all. `seq` is the number of the record, for `events(after=seq)`; `at` its time (UTC, ISO 8601);
    `agent` the path of a sub-agent, empty for the root. `msgspec.json.encode(event)` is its JSON, with its `type`."""

    is_durable = True

    seq: int
    at: str
    agent: str = ""


class RunStarted(Event, frozen=True, kw_only=True):
    """A process has opened the run to work on it. `after_crash`: the one before it had not closed it."""

    run_id: str
    host: str
    pid: int
    after_crash: bool = False


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
        if isinstance(line.record, records.ScopeCommitted) and line.record.scope != ROOT:
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
            case records.ScopeBegun() as begun:
                self._open.setdefault((begun.agent, begun.scope), (begun.title, set()))
            case records.StepCompleted() as done:
                self._open.setdefault((done.agent, done.scope), ("", set()))[1].add(done.no)
            case records.AgentBegun(agent=path) if path not in self.agents:
                self.agents.append(path)
            case records.Opened(why="run"):
                self.status = "running"
            case records.Closed(status=str(status)):
                self.status = status


_Facts = tuple[type[Event], dict[str, Any]]


def _value(raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw) if len(raw) else None
    except (msgspec.MsgspecError, RecursionError):
        return None  # `check` says what is wrong with it


def _error(failure: records.Failure | None) -> str:
    return f"{failure.kind}: {failure.message}" if failure else ""


def _call(record: records.OfCall) -> dict[str, Any]:
    return {"scope": record.scope, "no": record.no, "step": record.step, "call": record.call}


def _opened(record: records.Opened, teller: Teller) -> _Facts | None:
    if record.why not in ("run", "replay"):
        return None
    return RunStarted, {
        "run_id": record.run_id,
        "host": record.host,
        "pid": record.pid,
        "after_crash": record.found == "crash",
    }


def _closed(record: records.Closed, teller: Teller) -> _Facts | None:
    if record.status is None:
        return None
    return RunStopped, {
        "status": record.status,
        "reason": record.reason,
        "error": _error(record.error),
        "until": record.until,
        "result": _value(record.result),
    }


def _committed(record: records.ScopeCommitted, teller: Teller) -> _Facts | None:
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


def _begun(record: records.ScopeBegun, teller: Teller) -> _Facts | None:
    facts = {"scope": record.scope, "title": record.title}
    return (ItemBegun, facts) if record.scope != ROOT else None


def _doubt(record: records.Doubt) -> str:
    return f"{record.step}{record.call}: {DOUBTS[record.why]}"


_TOLD: dict[type, Callable[[Any, Teller], _Facts | None]] = {
    records.Opened: _opened,
    records.Closed: _closed,
    records.ScopeBegun: _begun,
    records.ScopeFailed: lambda record, teller: (
        ItemFailed,
        {"scope": record.scope, "title": teller.title(record), "error": _error(record.error)},
    ),
    records.ScopeCommitted: _committed,
    records.StepStarted: lambda record, teller: (EffectBegun, _call(record)),
    records.StepCompleted: lambda record, teller: (
        StepCompleted,
        _call(record) | {"effect": record.effect, "result": _value(record.result), "ms": record.ms, "how": record.how},
    ),
    records.StepFailed: lambda record, teller: (
        StepFailed,
        _call(record) | {"error": _error(record.error), "attempt": record.attempt, "final": record.final},
    ),
    records.StepRetry: lambda record, teller: (
        StepRetried,
        _call(record) | {"error": _error(record.error), "attempt": record.attempt, "wait": record.wait},
    ),
    records.ApprovalAsked: lambda record, teller: (
        Asked,
        {"id": record.id, "kind": "approval", "question": record.question, "choices": record.choices}
        | {"arguments": _value(record.arguments)},
    ),
    records.Doubt: lambda record, teller: (Asked, {"id": record.id, "kind": "effect", "question": _doubt(record)}),
    records.ApprovalAnswered: lambda record, teller: (
        Answered,
        {"id": record.id, "decision": _value(record.decision), "by": record.by, "arguments": _value(record.arguments)},
    ),
    records.Resolved: lambda record, teller: (Answered, {"id": record.id, "decision": record.outcome, "by": record.by}),
    records.PauseRequested: lambda record, teller: (
        PauseRequested,
        {"reason": record.reason, "by": record.by, "mode": record.mode, "until": record.until},
    ),
    records.Paused: lambda record, teller: (Paused, {"forced": record.forced}),
    records.Resumed: lambda record, teller: (Resumed, {"by": record.by, "instructions": record.instructions}),
    records.AgentBegun: lambda record, teller: (AgentBegun, {"scope": record.scope, "call": record.call}),
    records.AgentEnded: lambda record, teller: (
        AgentEnded,
        {"result": _value(record.result), "error": _error(record.error)},
    ),
    records.PlanChanged: lambda record, teller: (PlanChanged, {"by": record.by, "why": record.why}),
    records.Edited: lambda record, teller: (Edited, {"file": record.file, "by": record.by, "says": record.says}),
    records.TaskTaken: lambda record, teller: (TaskTaken, {"id": record.id, "file": record.file}),
    records.TaskDone: lambda record, teller: (TaskDone, {"id": record.id}),
}
"""The event of each type of record that has one, with its facts."""
