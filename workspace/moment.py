"""The whole state of a run at one position of the journal, and how each record changes it.

Pure: no I/O, no clock. The same records in the same order give the same moment, on every machine and in every later
version. A checkpoint is a moment written down (checkpoint.py); the readable files are views of one (projection.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import Raw, Struct, field

from . import patch as json_patch
from .errors import Damaged, UsageError
from .record import (
    NOTHING,
    Closed,
    Doubt,
    Failure,
    Key,
    Line,
    Message,
    OfCall,
    Opened,
    Output,
    PartialPromoted,
    PlanChanged,
    Resolved,
    ScopeBegun,
    ScopeCommitted,
    StepCompleted,
    StepFailed,
    StepProgress,
    StepStarted,
)
from .todo import Plan, Splice

Status = Literal["new", "running", "waiting", "paused", "failed", "completed"]

ROOT = ""
"""The scope of calls that the agent makes outside every other; it never commits."""


class Kept(Struct, frozen=True, omit_defaults=True):
    """A result: JSON, or the name of the blob that holds it."""

    result: Raw = NOTHING
    blob: str = ""


class Answer(Struct, frozen=True, omit_defaults=True):
    """A person's word on an effect that an earlier attempt may have done under other arguments."""

    key: Key  # the call that was asked about; the next attempt's arguments may differ again
    outcome: Literal["done", "not_done"]
    result: Raw = NOTHING
    blob: str = ""


class Scope(Struct):
    """A scope that has begun and not committed."""

    title: str = ""
    done: dict[Key, StepCompleted] = {}
    started: dict[Key, StepStarted] = {}  # effects without an outcome
    promoted: dict[Key, list[PartialPromoted]] = {}
    progress: dict[Key, Raw] = {}
    numbers: dict[Key, int] = {}  # `no` of every call ever recorded here
    settled: set[Key] = set()  # recorded effects that a person has matched with a later call
    answers: dict[str, Answer] = {}  # by effect, for the next call of it that has no record
    last_number: int = 0
    messages: list[Line] = []  # not yet committed

    def knows(self, key: Key) -> bool:
        """Whether there is a record of this call that counts."""
        return key in self.done or key in self.started or key in self.promoted


class Usage(Struct):
    steps: int = 0
    items: int = 0


class Moment(Struct, kw_only=True):
    """Everything the journal says up to and including record `seq`."""

    run_id: str
    seq: int = 0
    epoch: int = 0
    attempt: int = 0
    status: Status = "new"
    reason: str = ""
    error: Failure | None = None
    clean: bool = True  # the last process to open it has closed it
    data: Any = None
    has_data: bool = False  # the agent's initial state is recorded
    plan: Plan = field(default_factory=Plan)
    has_plan: bool = False
    adopted: str = ""  # SHA-256 of the plan that a person had written before the run began
    highest_id: int = 0  # the highest number ever given to an item
    scopes: dict[str, Scope] = field(default_factory=lambda: {ROOT: Scope()})
    results: dict[str, Kept] = {}  # of committed scopes
    outputs: dict[str, Output] = {}
    doubts: dict[str, Doubt] = {}  # open questions
    doubts_asked: int = 0
    usage: Usage = field(default_factory=Usage)
    messages: int = 0  # committed
    new_messages: list[Line] = []  # committed since the checkpoint this moment was read from, or since it was emptied

    def apply(self, lines: Iterable[Line]) -> None:
        """Go on to the position of the last of `lines`. Damaged if a record does not fit what went before."""
        for line in lines:
            try:
                _APPLY[type(line.record)](self, line, line.record)
            except (LookupError, ValueError, TypeError, UsageError) as error:
                raise Damaged(
                    f"record {line.seq} ({line.record.__struct_config__.tag}) does not fit the records before it",
                    path="journal", why=f"{type(error).__name__}: {error}",
                    remedy="take the folder journal/ from a backup",
                ) from error  # fmt: skip
            self.seq, self.epoch = line.seq, line.epoch

    # One method a record type

    def _opened(self, line: Line, record: Opened) -> None:
        if record.run_id != self.run_id:
            raise ValueError(f"it belongs to the run {record.run_id!r}, this is {self.run_id!r}")
        self.clean = False
        if record.why == "run":
            self.attempt += 1
            self.status, self.reason, self.error = "running", "", None
        for scope in self.scopes.values():
            scope.messages.clear()

    def _closed(self, line: Line, record: Closed) -> None:
        self.clean = True
        if record.status:
            self.status, self.reason, self.error = record.status, record.reason, record.error

    def _started(self, line: Line, record: StepStarted) -> None:
        scope = self._numbered(record)
        scope.started[record.key] = record
        self._answered(record, scope)

    def _completed(self, line: Line, record: StepCompleted) -> None:
        scope = self._numbered(record)
        key = record.key
        scope.done[key] = record
        scope.started.pop(key, None)
        scope.progress.pop(key, None)
        scope.promoted.pop(key, None)
        if record.effect:
            self._answered(record, scope)
        self.usage.steps += 1

    def _failed(self, line: Line, record: StepFailed) -> None:
        scope = self._numbered(record)
        if record.not_done:
            scope.started.pop(record.key, None)

    def _progress(self, line: Line, record: StepProgress) -> None:
        self._numbered(record).progress[record.key] = record.value

    def _promoted(self, line: Line, record: PartialPromoted) -> None:
        self._numbered(record).promoted.setdefault(record.key, []).append(record)

    def _begun(self, line: Line, record: ScopeBegun) -> None:
        self.scopes.setdefault(record.scope, Scope(title=record.title))
        if record.scope.isdecimal() and len(record.scope) <= 15:  # a longer one is a word to the plan, too
            self.highest_id = max(self.highest_id, int(record.scope))
        self._replan(record.plan)

    def _committed(self, line: Line, record: ScopeCommitted) -> None:
        if record.patch:
            self.data = json_patch.apply(self.data if self.has_data else None, record.patch)
            self.has_data = True
        self._replan(record.plan)
        scope = self.scopes.pop(record.scope)
        fresh = [message for message in scope.messages if message.commit == line.commit]
        self.messages += len(fresh)  # others are of a commit that was begun and given up
        self.new_messages.extend(fresh)
        if record.scope == ROOT:
            self.scopes[ROOT] = scope
            scope.messages = []
        else:
            self.results[record.scope] = Kept(record.result, record.blob)
            self.usage.items += 1
        self.outputs.update(record.outputs)

    def _plan_changed(self, line: Line, record: PlanChanged) -> None:
        if record.by == "person" and not self.has_plan:
            self.adopted = hashlib.sha256(record.plan[0].text.encode()).hexdigest()
        self._replan(record.plan)
        if record.outline:
            self.plan = Plan.restore(self.plan.text, record.outline)

    def _message(self, line: Line, record: Message) -> None:
        self.scopes[record.scope].messages.append(line)

    def _doubt(self, line: Line, record: Doubt) -> None:
        self._numbered(record).answers.pop(record.step, None)
        self.doubts[record.id] = record
        self.doubts_asked += 1

    def _resolved(self, line: Line, record: Resolved) -> None:
        doubt = self.doubts.pop(record.id)
        scope = self.scopes[doubt.scope]
        if doubt.why == "unclaimed":
            scope.answers[doubt.step] = self._answer(scope, doubt, record)
            for key in doubt.others:
                scope.settled.add(key)
                scope.started.pop(key, None)
        else:
            scope.started.pop(doubt.key, None)
            scope.done.pop(doubt.key, None)  # an earlier answer that was of no use
            if record.outcome == "done":
                scope.done[doubt.key] = StepCompleted(
                    scope=doubt.scope, no=doubt.no, step=doubt.step, args=doubt.args, n=doubt.n, call=doubt.call,
                    effect=True, result=record.result, blob=record.blob, how="resolved",
                )  # fmt: skip

    # What several of them do

    def _numbered(self, record: OfCall) -> Scope:
        scope = self.scopes[record.scope]
        scope.numbers[record.key] = record.no
        scope.last_number = max(scope.last_number, record.no)
        return scope

    def _answered(self, record: OfCall, scope: Scope) -> None:
        """A call of this effect goes on, so no question about it is open any more."""
        scope.answers.pop(record.step, None)
        for doubt in list(self.doubts.values()):
            same_effect = doubt.scope == record.scope and doubt.step == record.step
            if same_effect and (doubt.key == record.key or doubt.why == "unclaimed"):
                del self.doubts[doubt.id]

    def _answer(self, scope: Scope, doubt: Doubt, record: Resolved) -> Answer:
        """`--done` without a result means: what the earlier call returned."""
        result, blob = record.result, record.blob
        if record.outcome == "done" and not len(result) and not blob:
            for earlier in (scope.done[key] for key in doubt.others if key in scope.done):
                result, blob = earlier.result, earlier.blob
                break
        return Answer(doubt.key, record.outcome, result, blob)

    def _replan(self, splices: tuple[Splice, ...]) -> None:
        if splices:
            self.plan.apply(splices)
            self.has_plan = True


_APPLY: dict[type, Callable[[Moment, Line, Any], None]] = {
    Opened: Moment._opened,
    Closed: Moment._closed,
    StepStarted: Moment._started,
    StepCompleted: Moment._completed,
    StepFailed: Moment._failed,
    StepProgress: Moment._progress,
    PartialPromoted: Moment._promoted,
    ScopeBegun: Moment._begun,
    ScopeCommitted: Moment._committed,
    PlanChanged: Moment._plan_changed,
    Message: Moment._message,
    Doubt: Moment._doubt,
    Resolved: Moment._resolved,
}
