"""What the items of a run have done up to a record: the calls of each, finished or open, as they counted then.

The state of a run knows the calls of open scopes only. Those of finished ones are in the journal alone, so this replays
it, and notes the calls of each scope at the moment that it ends. Calls and work are as people are told of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Literal, NamedTuple, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..base import SatchelError
from ..journal import (
    NOTHING,
    AnyRecord,
    ApprovalAnswered,
    ApprovalAsked,
    Back,
    Closed,
    Edited,
    Failure,
    Key,
    Line,
    OfCall,
    Resolved,
    Rewound,
    ScopeBegun,
    ScopeCommitted,
    ScopeFailed,
    Spent,
    StepCompleted,
    StepEdit,
    StepFailed,
    StepRetry,
    StepStarted,
    blobs,
)
from ..state import ROOT, Moment, Past, Scope
from ..store import Store
from .moments import Story, moment_at, names_of, not_yet, story

CallState = Literal["completed", "failed", "begun", "in_doubt", "retrying", "asked"]
WorkState = Literal["open", "committed", "skipped", "dropped", "undone", "pruned"]

Place = tuple[str, str]
"""An agent and a scope."""


class FailedAttempt(Struct, frozen=True, omit_defaults=True, gc=False):
    """An attempt of a call that has failed."""

    seq: int
    at: str
    attempt: int
    error: str
    wait: float | None = None  # seconds until it was tried again by itself
    ms: int = 0


class Call(Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """A call of a step or an effect.

    `state`: "begun" is an effect without an outcome; "in_doubt" one about which a person is asked; "asked" a question
    (`run.ask`) without an answer. `how` says where a result is from, as in `step.completed`.
    """

    no: int  # its number in the scope
    step: str
    call: str = ""  # a preview of its arguments
    args: str = ""  # the hash of its arguments
    n: int = 0  # the number of equal calls before it
    effect: bool = False
    state: CallState = "completed"
    seq: int = 0  # the record of its outcome, or its newest record; 0: it is no longer kept
    at: str = ""
    how: str = ""
    ms: int = 0
    model: str = ""  # the fallback that answered
    prompts: dict[str, str] = {}  # the files of prompts/, each with the start of its SHA-256
    tokens: int = 0  # that its function has reported, in all attempts
    usd: float = 0.0
    recorded: Raw = NOTHING  # the result as JSON
    result_in: str = ""  # the file that has a large result
    error: str = ""  # the exception that the agent got
    troubles: tuple[FailedAttempt, ...] = ()

    @property
    def key(self) -> Key:
        """Equal in two runs for equal calls of equal scopes."""
        return self.step, self.args, self.n

    @property
    def result(self) -> Any:
        """The result as a JSON value; None for a large one."""
        return msgspec.json.decode(self.recorded) if len(self.recorded) else None


class Work(Struct, kw_only=True, omit_defaults=True):
    """What one item, or named scope, has done between its beginning and its end. The agent's own calls, outside of all
    scopes, are of the scope ""; it has no beginning and no end, and those that a return has undone are apart.

    `state`: "skipped" is a commit of a cancelled item; "dropped", a person has removed the item; "undone", a person has
    asked to do it again, or has gone back to before it. Of the calls of these two only effects still count. "pruned":
    it had ended before the first record that is kept, so its effects are all that is known of its calls.
    """

    agent: str = ""
    scope: str
    title: str = ""
    state: WorkState = "open"
    begun: int = 0  # the record; 0: it is no longer kept, or these are calls that a return has undone in a work
    begun_at: str = ""
    ended: int = 0
    ended_at: str = ""
    failures: int = 0  # how often its function has raised
    changes: int = 0  # of the state, when it committed
    outputs: tuple[str, ...] = ()
    calls: list[Call] = []

    @property
    def names(self) -> tuple[str, ...]:
        """How a person may name it: `^3` and `3-summarise-report-b`."""
        return names_of(self.agent, self.scope, self.title)

    @property
    def ms(self) -> int:
        return sum(call.ms for call in self.calls)


def call_of(record: OfCall, outcome: Line | None, troubles: Sequence[Line], *, is_asked_about: bool) -> Call:
    """The call whose newest record is `record`. `outcome` and `troubles`: the lines of its outcome and of its failed
    attempts, as far as they are known. `is_asked_about`: there is an open question about it."""
    newest = outcome or (troubles[-1] if troubles else None)
    seq, at = (newest.seq, newest.at) if newest else (0, "")
    tried = tuple(failed_attempts(troubles)) if troubles else ()
    if type(record) is StepCompleted:  # as most are
        return Call(
            no=record.no,
            step=record.step,
            call=record.call,
            args=record.args,
            n=record.n,
            effect=record.effect,
            seq=seq,
            at=at,
            how=record.how,
            ms=record.ms,
            model=record.model,
            prompts=record.prompts,
            recorded=record.result,
            result_in=f"{blobs.BLOBS}/{record.blob}" if record.blob else "",
            troubles=tried,
        )
    made = partial(
        Call,
        no=record.no,
        step=record.step,
        call=record.call,
        args=record.args,
        n=record.n,
        prompts=record.prompts,
        seq=seq,
        at=at,
        troubles=tried,
    )
    match record:
        case StepStarted():
            return made(effect=True, state="in_doubt" if is_asked_about else "begun")
        case StepFailed():
            return made(effect=record.effect, state="failed", ms=record.ms, error=_error(record.error))
        case StepRetry():
            return made(state="retrying")
        case _:
            return made(effect=True, state="asked")


def failed_attempts(troubles: Sequence[Line]) -> Iterator[FailedAttempt]:
    """The failed attempts in the records of a call. One that is tried again has a record of its failure and one of the
    wait."""
    last: FailedAttempt | None = None
    for line in troubles:
        record = line.record
        assert isinstance(record, StepRetry | StepFailed)
        if isinstance(record, StepRetry):
            ms = last.ms if last is not None and last.attempt == record.attempt else 0
            yield FailedAttempt(line.seq, line.at, record.attempt, _error(record.error), record.wait, ms)
            last = None
        else:
            if last is not None:
                yield last
            last = FailedAttempt(line.seq, line.at, record.attempt, _error(record.error), None, record.ms)
    if last is not None:
        yield last


def _error(failure: Failure) -> str:
    return f"{failure.kind}: {failure.message}"


class StepHistory(Struct, frozen=True):
    """A moment, and the work that led to it, in the order in which it began."""

    moment: Moment
    work: list[Work]
    since: int = 1  # retention has removed the records before this one, or they are in the run that this is a fork of
    problem: SatchelError | None = None  # why later records can't be read


def step_history(store: Store, seq: int | None = None, told: Story | None = None) -> StepHistory:
    """The work up to record `seq`, or up to the newest that can be read. `told`: the story of the run, if it is known.
    Errors as of `moment_at`."""
    told = told or story(store)
    moment = told.begin()
    since, last = max(1, moment.seq), told.lines[-1].seq if told.lines else moment.seq
    if seq is not None and seq > last:
        raise told.problem or not_yet(store, seq, last)
    if seq is not None and seq < since:
        return StepHistory(moment := moment_at(store, seq), _Gathering(moment).finish(), since, told.problem)
    gathering = _Gathering(moment)
    for line in told.lines:
        if seq is not None and line.seq > seq:
            break
        gathering.add(line)
    return StepHistory(moment, gathering.finish(), since, told.problem)


class _Change(NamedTuple):
    """From record `seq` on, this was the newest work of its scope. `then`: as it was."""

    seq: int
    work: Work
    then: Work


class _Return(NamedTuple):
    """Record `seq` returns the run to record `to`: those between no longer count."""

    seq: int
    to: int


class _Gathering:
    """Follows the records of a run, and keeps the calls of each scope that ends."""

    def __init__(self, moment: Moment):
        """`moment` moves on with each record. There may be no records of what led to it."""
        self._moment = moment
        self._all: list[Work] = []
        self._newest: dict[Place, Work] = {}
        self._changes: dict[Place, list[_Change]] = {}
        self._outcomes: dict[Place, dict[Key, Line]] = {}
        self._replaced: dict[tuple[str, str, Key], list[Line]] = {}  # earlier ones of a call
        self._returns: list[_Return] = []
        self._undone: list[Work] = []  # parts of works that a return has undone
        self._troubles: dict[Place, dict[Key, list[Line]]] = {}
        self._spent: dict[Place, dict[int, list[Spent]]] = {}  # by the number of the call
        for work in _pruned(moment):
            self._take(0, work, "pruned")

    def add(self, line: Line) -> None:
        record = line.record
        if type(record) is StepCompleted:  # most records are: nothing ends or begins
            self._note_call(line, record)
            self._moment.apply((line,))
            return
        ending = {place: (self._work(*place), self._calls(place)) for place in self._may_end(record)}
        before = [(each, self._calls_of(each)) for each in self._all] if isinstance(record, Rewound) else []
        self._note(line)
        self._moment.apply([line])
        match record:
            case ScopeBegun():
                self._begin(line, record)
            case ScopeFailed():
                self._work(record.agent, record.scope).failures += 1
            case Edited() if record.redone:
                for scope in record.redone:
                    if (work := self._newest.get((record.agent, scope))) and work.state == "committed":
                        self._set(line.seq, work, "undone")
        for place, (work, calls) in ending.items():
            if self._scope(place) is None:
                self._end(work, calls, line)
        if isinstance(record, Rewound):
            self._returns.append(_Return(line.seq, record.to))
            self._go_back(line.seq, record.to)
            self._undo_calls(line, before)

    def finish(self) -> list[Work]:
        for agent in self._moment.agents.values():
            for key in agent.scopes:
                if calls := self._calls((agent.path, key)):
                    self._work(agent.path, key).calls = calls
        return [work for work in self._all if work.scope != ROOT or work.calls]

    def _go_back(self, seq: int, to: int) -> None:
        """The work that counted at record `to` counts again, as it was then."""
        for place, changes in self._changes.items():
            was = next((change for change in reversed(changes) if change.seq <= to), None)
            if (newest := self._newest[place]).scope == ROOT:
                continue
            if was is None or was.work is not newest:
                self._set(seq, newest, "undone")
            if was is not None:
                self._newest[place] = work = was.work
                work.calls, work.ended, work.ended_at = was.then.calls, was.then.ended, was.then.ended_at
                work.changes, work.outputs = was.then.changes, was.then.outputs
                self._set(seq, work, was.then.state)
            if self._scope(place) is not None:  # it was open, or something about it is in doubt
                open = self._newest[place]
                open.ended, open.ended_at = 0, ""
                self._set(seq, open, "open")

    def _calls_of(self, work: Work) -> list[Call]:
        """The calls of a work as it is now."""
        place = work.agent, work.scope
        is_open = work is self._newest[place] and self._scope(place) is not None
        return self._calls(place) if is_open else work.calls

    def _undo_calls(self, line: Line, before: list[tuple[Work, list[Call]]]) -> None:
        """Keep the calls that no work has any more after a return, because it goes on from an earlier call. `before`:
        the works before the return, with their calls."""
        parts = {id(part) for part in self._undone}
        works = [work for work in self._all if id(work) not in parts]
        told = {(work.agent, work.scope, call.key, call.seq) for work in works for call in self._calls_of(work)}
        for part in self._undone:  # this return may have brought them back
            at = part.agent, part.scope
            part.calls = [call for call in part.calls if (*at, call.key, call.seq) not in told]
        self._all = [work for work in self._all if work.calls or id(work) not in parts]
        for work, calls in before:
            at = work.agent, work.scope
            undone = [call for call in calls if (*at, call.key, call.seq) not in told]
            if undone and id(work) not in parts:
                part = Work(agent=work.agent, scope=work.scope, title=work.title, state="undone", calls=undone)
                part.ended, part.ended_at = line.seq, line.at
                self._undone.append(part)
                place = next(n for n, each in enumerate(self._all) if each is work)
                self._all.insert(len(self._all) if work.scope == ROOT else place, part)

    def _counts(self, seq: int) -> bool:
        """Whether a record counts: no return has taken it out, or a later one has brought it back."""
        until = self._moment.seq
        for back in reversed(self._returns):
            if back.seq > until:
                continue  # it does not count itself
            if seq >= back.seq:
                break
            until = back.to
        return seq <= until

    def _set(self, seq: int, work: Work, state: WorkState) -> None:
        work.state = state
        self._changes.setdefault((work.agent, work.scope), []).append(_Change(seq, work, replace(work)))

    def _may_end(self, record: AnyRecord) -> list[Place]:
        """The open scopes that are not open after this record, perhaps."""
        match record:
            case ScopeCommitted(agent=agent, scope=scope) if scope != ROOT:
                places = [(agent, scope)]
            case ScopeBegun(agent=agent) if not getattr(self._moment.agents.get(agent), "left", None):
                return []  # else it may be an item that had another id
            case Edited() | Rewound() | Resolved() | ScopeBegun() | Closed(status="cancelled"):
                places = [place for place, work in self._newest.items() if work.state == "open" and place[1] != ROOT]
            case _:
                return []
        return [place for place in places if self._scope(place) is not None]

    def _note(self, line: Line) -> None:
        """Remember where the outcome of a call is recorded, and its failed attempts."""
        record: Any = line.record
        match record:
            case StepRetry() | StepFailed(final=False):
                self._work(record.agent, record.scope)
                troubles = self._troubles.setdefault((record.agent, record.scope), {})
                troubles.setdefault(record.key, []).append(line)
            case Spent(no=int(no)):
                self._spent.setdefault((record.agent, record.scope), {}).setdefault(no, []).append(record)
            case ApprovalAsked(back=Back()):
                pass  # no call of an agent
            case OfCall():
                self._note_call(line, record)
            case Resolved() | ApprovalAnswered():
                asked = self._moment.doubts.get(record.id) or self._moment.approvals.get(record.id)
                if asked is not None and getattr(asked, "back", None) is None:
                    self._put((asked.agent, asked.scope), asked.key, line)
            case Edited(step=StepEdit() as step):
                self._put((record.agent, step.scope), step.key, line)

    def _note_call(self, line: Line, record: OfCall) -> None:
        place = record.agent, record.scope
        if place not in self._newest:
            self._work(*place)
        self._put(place, record.key, line)

    def _put(self, place: Place, key: Key, line: Line) -> None:
        if (outcomes := self._outcomes.get(place)) is None:
            outcomes = self._outcomes[place] = {}
        if known := outcomes.get(key):
            self._replaced.setdefault((*place, key), []).append(known)
        outcomes[key] = line

    def _work(self, agent: str, key: str) -> Work:
        """The newest work of a scope."""
        place = agent, key
        if place not in self._newest:
            scope = self._scope(place)
            self._take(0, Work(agent=agent, scope=key, title=scope.title if scope else ""))
        return self._newest[place]

    def _take(self, seq: int, work: Work, state: WorkState = "open") -> None:
        self._newest[work.agent, work.scope] = work
        self._all.append(work)
        self._set(seq, work, state)

    def _begin(self, line: Line, record: ScopeBegun) -> None:
        place = record.agent, record.scope
        if (known := self._newest.get(place)) and known.state == "open":
            return  # recorded again, because its mark in the plan was changed
        work = Work(agent=record.agent, scope=record.scope, title=record.title, begun=line.seq, begun_at=line.at)
        self._take(line.seq, work)
        self._troubles.pop(place, None)
        self._spent.pop(place, None)

    def _end(self, work: Work, calls: list[Call], line: Line) -> None:
        work.calls, work.ended, work.ended_at = calls, line.seq, line.at
        match line.record:
            case ScopeCommitted() as record:
                work.changes, work.outputs = len(record.patch), tuple(record.outputs)
                self._set(line.seq, work, "committed" if record.cancelled is None else "skipped")
            case Closed():
                self._set(line.seq, work, "committed")
            case Edited(redone=redone) if work.scope not in redone:
                self._set(line.seq, work, "dropped")
            case Resolved():
                self._set(line.seq, work, "dropped")
            case _:
                self._set(line.seq, work, "undone")

    def _scope(self, place: Place) -> Scope | None:
        agent = self._moment.agents.get(place[0])
        return agent.scopes.get(place[1]) if agent else None

    def _calls(self, place: Place) -> list[Call]:
        """The calls of an open scope."""
        scope = self._scope(place)
        assert scope is not None, place
        approvals = [each for each in self._moment.approvals.values() if each.back is None]
        asked = {each.key: each for each in approvals if (each.agent, each.scope) == place}
        doubted = {each.key for each in self._moment.doubts.values() if (each.agent, each.scope) == place}
        troubles = self._troubles.get(place, {})
        if self._returns:
            counting = ((key, [line for line in lines if self._counts(line.seq)]) for key, lines in troubles.items())
            troubles = {key: lines for key, lines in counting if lines}
        records: dict[Key, OfCall] = {key: cast(OfCall, lines[-1].record) for key, lines in troubles.items()}
        for known in (asked, scope.failed, scope.started, scope.done):
            records.update(known)
        calls = [
            call_of(record, self._outcome(place, record), troubles.get(key, ()), is_asked_about=key in doubted)
            for key, record in records.items()
        ]
        spent = self._spent.get(place, {})
        return sorted((_with_costs(call, spent.get(call.no)) for call in calls), key=attrgetter("no"))

    def _outcome(self, place: Place, record: OfCall) -> Line | None:
        """The line with the outcome of a call. That of an effect counts even after a return to before it."""
        key = record.key
        newest = self._outcomes.get(place, {}).get(key)
        if newest is None:  # after a return to an earlier record, an item may have got another id
            known = (lines.get(key) for (agent, _), lines in reversed(self._outcomes.items()) if agent == place[0])
            return next(filter(None, known), None)
        if not self._returns or self._counts(newest.seq) or getattr(record, "effect", False):
            return newest
        older = reversed(self._replaced.get((*place, key), ()))
        found = next((line for line in older if self._counts(line.seq)), None)
        return found or (None if isinstance(record, StepRetry | StepFailed) else newest)


def _with_costs(call: Call, spent: Sequence[Spent] | None) -> Call:
    if not spent:
        return call
    return replace(call, tokens=sum(each.tokens for each in spent), usd=round(sum(each.usd for each in spent), 9))


def _pruned(moment: Moment) -> Iterator[Work]:
    """What had ended by this moment, of which there are no records."""
    for agent in moment.agents.values():
        titles = {task.id: task.text for task in agent.plan.tasks if task.id and task.is_work and task.is_finished}
        for key in dict.fromkeys((*titles, *agent.results, *agent.past)):
            if key is None or key in agent.scopes:
                continue
            past = agent.past.get(key) or Past(key.removeprefix("_"), 0)
            effects = sorted((record for record in past.done.values() if record.effect), key=lambda each: each.no)
            calls = [call_of(each, None, (), is_asked_about=False) for each in effects]
            calls = [replace(call, at=past.when.get(call.key, "")) for call in calls]
            yield Work(agent=agent.path, scope=key, title=titles.get(key) or past.title, calls=calls)
