"""The state of one agent of the tree at one position of the journal, and how records change it; and its crashes.

Pure, like the moment that contains it (run_state.py). A method raises before it has changed anything, or not at all.

After some crashes of an item, with nothing new on record in between, a run is stuck. A crash counts for every scope
that is open then, the run's agent itself included, except for one that waits: for a person's answer, or in `run.sleep`.
No record says which of several parallel items has ended the process, so it counts for each; but one that comes further
afterwards counts from 0 again. The agent itself comes further with any of them: it counts where the process dies so
soon that not even the beginning of an item is on record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct, field

from ..journal import (
    AgentBegun,
    AgentEnded,
    AnyRecord,
    ApprovalAnswered,
    ApprovalAsked,
    Count,
    Doubt,
    Edited,
    Failure,
    FileWritten,
    Input,
    Kept,
    Line,
    Message,
    MessageEdit,
    Migrated,
    OfCall,
    Output,
    PartialPromoted,
    PlanChanged,
    Resolved,
    ScopeBegun,
    ScopeCommitted,
    ScopeFailed,
    StepCompleted,
    StepEdit,
    StepFailed,
    StepProgress,
    StepRetry,
    StepStarted,
    Uncalled,
)
from ..plan import Plan, Splice, TaskRow
from . import json_patch, scope_state
from .scope_state import FILES, MESSAGES, STUCK_AFTER, FileState, LogPlace, Past, RowLog, Scope, log_key

ROOT = ""
"""The scope of an agent's calls outside every other scope; it never commits."""

CANCEL = "_on_cancel"
"""The same for `on_cancel`, because it may make a call that is equal to one of the agent."""

SLEEP = "sleep"
"""The name of the call that waits (`run.sleep`). Its progress is its end."""

ENDS_KEPT = 20
"""Items whose end is remembered, to tell how fast the run is."""

EVERY = "_"
"""Among the forgotten scopes: every scope, because the plan itself was lost. No scope has this name."""


class AgentMoment(RowLog, Struct, kw_only=True):
    """Everything that the journal says about one agent, up to and including the moment's record. It is a log itself:
    that of its conversation."""

    path: str = ""
    data: Any = None
    has_data: bool = False  # its initial state is recorded
    data_version: Count = 1  # the version of the data's state type
    plan: Plan = field(default_factory=Plan)
    has_plan: bool = False
    adopted: str = ""  # SHA-256 of the plan that a person had written before the agent began
    planned: str = ""  # the hash of the arguments of the last `run.plan`
    highest_id: Count = 0  # the highest number ever given to an item
    scopes: dict[str, Scope] = field(default_factory=lambda: {ROOT: Scope()})
    past: dict[str, Past] = {}  # of the scopes that have ended and had effects
    left: dict[str, str] = {}  # items that a return has taken out of the plan, but not their effects: their titles
    other_ids: dict[str, list[str]] = {}  # of items that were planned again after a return: their former ids
    results: dict[str, Kept] = {}  # of committed scopes
    outputs: dict[str, Output] = {}
    ended_at: list[str] = []  # the times of the newest items that this opening has ended, oldest first
    edits: dict[str, str] = {}  # by file, the SHA-256 of the last edited one that was merged
    logs: dict[str, RowLog] = {}  # by name, those besides its conversation
    files: dict[str, FileState] = {}  # in files/, by path
    forgotten: list[str] = []  # the journal was lost with the work of these scopes; see `forgets`
    spawned_in: str = ROOT  # the scope of the agent above
    args: str = ""
    call: str = ""
    input: Kept | None = None  # the arguments of the run's own agent, by parameter
    result: Kept | None = None  # it has returned
    error: Failure | None = None  # it has raised

    @property
    def folder(self) -> str:
        """The folder of its files: empty for the root, else `agents/NAME/` for each name of the path."""
        return folder_of_agent(self.path)

    @property
    def is_finished(self) -> bool:
        """Whether it has returned and its plan is finished. For the root only the plan counts."""
        return not self._has_work and (not self.path or self.result is not None)

    @property
    def row_logs(self) -> Iterator[LogPlace]:
        """Its conversation, then its other logs."""
        yield LogPlace(self.path, f"{self.folder}{MESSAGES}", self)
        for name, log in self.logs.items():
            yield LogPlace(log_key(self.path, name), f"{self.folder}logs/{name}.jsonl", log)

    def log(self, name: str) -> RowLog:
        """The log of this name, which begins with its first row. Without a name: the conversation."""
        return self.logs.setdefault(name, RowLog()) if name else self

    def forgets(self, key: str) -> bool:
        """Whether this scope may have done more than is recorded. It is unknown whether a named scope had begun."""
        return bool(known := self.forgotten) and (key in known or key.startswith("_") or EVERY in known)

    @property
    def has_ended(self) -> bool:
        """Whether a sub-agent has returned or raised."""
        return self.result is not None or self.error is not None

    def scope(self, key: str, title: str) -> Scope:
        """The open scope of this name, or a new one: with its effects, if it had ended before."""
        former = self._former(key, title)
        found = self.scopes.get(former) or (
            self.past[former].opened(title) if former in self.past else Scope(title=title)
        )
        return found if former == key else found.moved(key)

    def _former(self, key: str, title: str) -> str:
        """After a return, an item may come into the plan again, with a new id: the one under which it is known."""
        if not self.left or key in self.scopes or key in self.past:
            return key
        return next((known for known, text in self.left.items() if text == title), key)

    # One method per record type

    def began(self, record: AgentBegun) -> None:
        self.spawned_in, self.args, self.call = record.scope, record.args, record.call
        self.result = self.error = None

    def got_input(self, record: Input) -> None:
        if self.path or self.input is not None:
            raise ValueError("the arguments of the run are recorded already, or belong to a sub-agent")
        self.input = Kept(record.arguments, record.blob)

    def cancelled(self) -> None:
        """The run is cancelled, and its `on_cancel` has ended."""
        self._end(CANCEL)

    def ended(self, record: AgentEnded) -> None:
        self.error = record.error
        self.result = None if record.error else Kept(record.result, record.blob)

    def opened(self) -> None:
        self.ended_at = []
        for scope in self.scopes.values():
            scope.messages.clear()
            scope.retries.clear()

    def retried(self, line: Line, record: StepRetry) -> None:
        if record.key in self.open_scope(record.scope).done:
            raise ValueError(f"the call {record.step}{record.call} has returned")
        self._numbered(record).retries[record.key] = line

    def started(self, record: StepStarted) -> None:
        scope = self._numbered(record)
        scope.retries.pop(record.key, None)
        scope.started[record.key] = record
        scope.failed.pop(record.key, None)
        scope.take_answer(record.key)

    def completed(self, line: Line, record: StepCompleted) -> None:
        scope = self._numbered(record)
        key = record.key
        scope.done[key] = scope_state.without_arguments(record)
        scope.retries.pop(key, None)
        scope.started.pop(key, None)
        scope.failed.pop(key, None)
        scope.progress.pop(key, None)
        scope.promoted.pop(key, None)
        if record.effect:
            scope.when[key] = line.at
            scope.take_answer(key)
            scope.settled.discard(key)

    def failed(self, record: StepFailed) -> None:
        scope = self._numbered(record)
        scope.retries.pop(record.key, None)
        if record.not_done:
            scope.started.pop(record.key, None)
        scope.run_again(record.calls)
        if record.final:
            scope.failed[record.key] = scope_state.without_arguments(record)

    def progressed(self, record: StepProgress) -> None:
        if record.key in self.open_scope(record.scope).done:
            raise ValueError(f"the call {record.step}{record.call} has returned")
        self._numbered(record).progress[record.key] = record.value

    def restart_calls(self) -> None:
        """Calls that were cut off start from the beginning: their progress does not count. A wait stays the same."""
        for scope in self.scopes.values():
            scope.promoted.clear()
            scope.progress = {key: value for key, value in scope.progress.items() if key[0] == SLEEP}

    def promoted(self, record: PartialPromoted) -> None:
        self._numbered(record).promoted.setdefault(record.key, []).append(record)

    def scope_begun(self, record: ScopeBegun) -> None:
        self._replan(record.plan)
        if record.scope not in self.scopes:
            former, scope = self._former(record.scope, record.title), self.scope(record.scope, record.title)
            if former != record.scope:
                self.other_ids[record.scope] = [*self.other_ids.pop(former, ()), former]
                for known in (self.left, self.scopes, self.past):
                    known.pop(former, None)
            self.scopes[record.scope] = scope
        self._number(record.scope)

    def scope_failed(self, record: ScopeFailed) -> None:
        scope = self.open_scope(record.scope)
        scope.failures += not record.uncounted
        scope.run_again(record.calls)
        scope.messages = []  # of a commit that was refused
        scope.retries = {}

    def committed(self, line: Line, record: ScopeCommitted) -> None:
        scope = self.open_scope(record.scope)
        data = self._patched(record.patch)
        self._replan(record.plan)
        self._set_data(record.patch, data)
        self.planned = record.planned or self.planned
        self._end_own_work(record.scope)
        for message in scope.messages:
            if message.commit == line.commit:  # others belong to a commit that was given up
                assert isinstance(message.record, Message)
                log = self.log(message.record.log)
                log.messages += 1
                log.new_messages.append(message)
                if record.key:
                    log.appended[record.key] = message.seq
        if record.scope == ROOT:
            scope.messages = []
        else:
            self._end(record.scope)
            if scope_state.is_of_item(record.scope) and record.plan:  # else it was dropped
                self.ended_at = [*self.ended_at[1 - ENDS_KEPT :], line.at]
            steps = sum(not step.effect for step in scope.done.values())
            self.results[record.scope] = Kept(record.result, record.blob, steps)
            if record.uncalled and (past := self.past.get(record.scope)) is not None:
                past.uncalled = [key for key in record.uncalled if key in past.done]
        self.outputs.update(record.outputs)

    def left_uncalled(self, record: Uncalled) -> None:
        self.open_scope(record.scope).uncalled = list(record.calls)

    @property
    def uncalled(self) -> list[tuple[str, StepCompleted]]:
        """The effects that were done and not called again: those of ended scopes, and, when the agent has returned, of
        those that it has left open; each with the title of its scope."""
        known = [*self.past.values(), *(self.scopes.values() if self.result is not None else ())]
        return [(each.title, each.done[key]) for each in known for key in each.uncalled if key in each.done]

    def plan_changed(self, record: PlanChanged) -> None:
        is_adopted = record.by == "person" and not self.has_plan
        text = record.plan[0].text if is_adopted else ""
        self._replan(record.plan)
        if is_adopted:
            self.adopted = hashlib.sha256(text.encode()).hexdigest()
        self._outline(record.outline)
        self.planned = record.planned or self.planned
        if record.by == "person" and self._has_work:
            self.result = None

    def message(self, line: Line, record: Message) -> None:
        self.open_scope(record.scope).messages.append(line)

    def file_written(self, line: Line, record: FileWritten) -> None:
        if record.content is None:
            del self.files[record.path]
        else:
            self.files[record.path] = FileState(line.seq, line.at, record.content)

    def migrated(self, record: Migrated) -> None:
        self._set_data(record.patch, self._patched(record.patch))
        self.data_version = record.to

    def asked_approval(self, record: ApprovalAsked) -> None:
        self._numbered(record)

    def answered_approval(self, line: Line, asked: ApprovalAsked, record: ApprovalAnswered) -> None:
        """The answer is the result of the call, also when its scope is entered again: a denial stays one."""
        result = {"decision": record.decision, "by": record.by, "note": record.note, "at": line.at, "how": record.how}
        if len(record.arguments):
            result["arguments"] = record.arguments
        self.completed(line, _by_person(asked, "answered", Raw(msgspec.json.encode(result))))

    def asked(self, record: Doubt) -> None:
        self._numbered(record).answers.pop(record.key, None)

    def resolved(self, doubt: Doubt, record: Resolved) -> None:
        scope = self.open_scope(doubt.scope)
        if doubt.why == "unclaimed":
            scope.answers[doubt.key] = scope_state.answer_of(scope, doubt, record)
            return
        if doubt.why == "uncalled" and record.outcome == "done":
            scope.settled.add(doubt.key)  # it stays done, and no call of it is expected
            return
        began = scope.started.pop(doubt.key, None)
        unusable = scope.done.pop(doubt.key, None)  # an earlier answer
        was = began or unusable
        if record.outcome in ("not_done", "none_since"):
            scope.settled.add(doubt.key)
        else:
            schema = was.schema if was is not None else ""
            scope.done[doubt.key] = _by_person(doubt, "resolved", record.result, record.blob, schema)
        self._end_if_dropped(doubt.scope)

    def edited(self, line: Line, record: Edited) -> None:
        if record.step is not None:
            self._check_step(record.step)
        self._check_messages(record)
        data = self._patched(record.patch)
        self._replan(record.plan)
        if record.own_work:
            self.plan.take_own_work(self.plan.own_work.union(record.own_work))
            for id in record.own_work:
                self._number(id)
        self._set_data(record.patch, data)
        self._outline(record.outline)
        if record.messages:
            self.messages += _added(record.messages)
            self.new_messages.append(line)
        for key in [key for key in record.redone if key != ROOT]:
            self._begin_anew(key)
            if record.effects and (known := self.scopes.get(key) or self.past.get(key)) is not None:
                scope_state.forget_effects(known)
        for key in record.dropped:
            if key in self.scopes and not self.scopes[key].started:  # a doubt outlives its item
                self._end(key)
        if record.redone or record.step is not None or (record.plan and self._has_work):
            self.result = None  # it is entered again, to do what is open now
        if record.plan or record.patch or record.messages:
            for scope in self.scopes.values():
                scope.failures = scope.crashes = 0
        if record.step is not None:
            self._step_edited(line, record.step)
        if record.written is not None:
            path = record.file.removeprefix(FILES)
            self.files[path] = FileState(line.seq, line.at, record.written)
        elif record.sha or record.messages:
            self.edits[record.file] = record.sha  # none: more records of the same edit follow

    # What several of them do

    @property
    def _has_work(self) -> bool:
        settled, leaves = self.plan.progress
        return settled < leaves

    def _check_messages(self, record: Edited) -> None:
        new = sum(not each.seq for each in record.messages)
        if new > 1 or self.messages + _added(record.messages) < 0:
            raise ValueError("it does not fit the conversation")

    def _check_step(self, edit: StepEdit) -> None:
        scope = self.open_scope(edit.scope)
        if not edit.redo and not any(edit.key in known for known in (scope.done, scope.started, scope.failed)):
            raise ValueError(f"there is no call {edit.key} in scope {edit.scope!r}")

    def _step_edited(self, line: Line, edit: StepEdit) -> None:
        scope, key = self.scopes[edit.scope], edit.key
        scope.failures = scope.crashes = 0
        was: OfCall | None = scope.done.pop(key, None)
        if edit.redo and isinstance(was, StepCompleted) and was.effect:
            scope.again[key] = scope.again.get(key, 0) + 1
        started, failed = scope.started.pop(key, None), scope.failed.pop(key, None)
        was = started or was or failed
        scope.settled.discard(key)
        if edit.redo:
            if started is not None:
                scope.settled.add(key)  # a person has said that it has not happened
            scope.promoted.pop(key, None)
            scope.progress.pop(key, None)
            self._end_if_dropped(edit.scope)
            return
        assert was is not None  # `_check_step` has looked
        is_effect = isinstance(was, StepStarted) or (isinstance(was, StepCompleted | StepFailed) and was.effect)
        schema = was.schema if isinstance(was, StepStarted | StepCompleted | StepFailed) else ""
        scope.done[key] = _by_person(was, "edited", edit.result, edit.blob, schema, effect=is_effect)
        if is_effect:
            scope.when[key] = line.at
        self._end_if_dropped(edit.scope)

    def _end_if_dropped(self, key: str) -> None:
        """The last doubt of a scope is resolved whose item a person had removed from the plan."""
        scope = self.scopes[key]
        if scope_state.is_of_item(key) and not scope.started and not self.plan.is_to_do(key):
            self._end(key)

    def _begin_anew(self, key: str) -> None:
        self.results.pop(key, None)
        scope = self.scopes.get(key)
        if scope is None or not (scope.started or scope.answers):
            self._end(key)
            return
        scope.done = {call: step for call, step in scope.done.items() if step.effect}
        scope.promoted, scope.progress, scope.failed = {}, {}, {}

    def _end(self, key: str) -> None:
        """Close a scope and remember its effects."""
        scope = self.scopes.pop(key, None)
        if scope is None:
            return
        effects = {call: record for call, record in scope.done.items() if record.effect}
        if effects or scope.again:
            self.past[key] = scope.ended(effects)
        else:
            self.past.pop(key, None)  # a person has undone its beginning

    def _numbered(self, record: OfCall) -> Scope:
        scope = self.open_scope(record.scope)
        scope.numbers[record.key] = record.no
        scope.last_number = max(scope.last_number, record.no)
        return scope

    def open_scope(self, key: str) -> Scope:
        """The open scope of this name. LookupError if it has ended, or never begun."""
        scope = self.scopes.get(key)
        if scope is None:
            raise LookupError(f"the scope {key!r} is not open")
        return scope

    def _patched(self, patch: list[dict[str, object]]) -> Any:
        """The data with the patch. Raises, with nothing changed, if the patch does not fit."""
        data = json_patch.apply(self.data if self.has_data else None, patch) if patch else self.data
        if patch and not isinstance(data, dict):
            raise ValueError("the agent's data would not be an object")
        return data

    def _set_data(self, patch: list[dict[str, object]], data: Any) -> None:
        if patch:
            self.data, self.has_data = data, True

    def _number(self, id: str) -> None:
        """No other item will get this id."""
        if id.isdecimal() and len(id) <= 15:  # a longer one is text in the plan, too
            self.highest_id = max(self.highest_id, int(id))

    def _replan(self, splices: tuple[Splice, ...]) -> None:
        """Raises, with nothing changed, if they do not fit."""
        if splices:
            self.plan.apply(splices)
            self.has_plan = True

    def _end_own_work(self, key: str) -> None:
        """An item has committed. If it has not ended with that, it has got others below it meanwhile, and only waits
        for them."""
        if key.lower() in self.plan.own_work and not ((task := self.plan.task(key)) and task.is_finished):
            self.plan.take_own_work(self.plan.own_work - {key.lower()})

    def _outline(self, outline: list[TaskRow]) -> None:
        if outline:
            self.plan.take_outline(outline)


def folder_of_agent(path: str) -> str:
    return "".join(f"agents/{name}/" for name in path.split("/")) if path else ""


def _added(edits: Sequence[MessageEdit]) -> int:
    """By how many messages the conversation becomes longer."""
    return sum(not each.seq for each in edits) - sum(each.is_removal for each in edits)


Agents = Mapping[str, AgentMoment]
"""The agents of a run, by path."""


def count_crash(agents: Agents, asked: Container[tuple[str, str]]) -> None:
    """A process has crashed. `asked`: the scopes, by agent and key, that wait for a person's answer."""
    for path, agent in agents.items():
        for key, scope in () if agent.has_ended else agent.scopes.items():
            is_asleep = any(call[0] == SLEEP for call in scope.progress)
            is_own = key == CANCEL or (key == ROOT and path)  # a sub-agent's own calls are a part of its caller's item
            if not is_own and (path, key) not in asked and not is_asleep:
                scope.crashes += 1


def crash_suspects(agents: Agents) -> list[str]:
    """The titles of the stuck items and named scopes. If only the agent itself is stuck, of those that were open at any
    of its crashes."""
    counted = [scope for agent in agents.values() for key, scope in agent.scopes.items() if key != ROOT]
    stuck = [scope.title for scope in counted if scope.crashes >= STUCK_AFTER]
    return stuck or [scope.title for scope in counted if scope.crashes]


def forget_all_crashes(agents: Agents) -> None:
    """No crash counts any more: what the run waits for has come further."""
    for agent in agents.values():
        for scope in agent.scopes.values():
            scope.crashes = 0


def allow_one_more(agents: Agents) -> None:
    """The run is resumed: a stuck item has one more attempt, as after its failures."""
    for agent in agents.values():
        for scope in agent.scopes.values():
            scope.crashes = min(scope.crashes, STUCK_AFTER - 1)


def comes_further(agents: Agents, record: AnyRecord) -> bool:
    """Whether this record, which is about to be applied, tells that a scope has come further. To begin does not, nor
    does what each attempt tells again: that an effect began, the failure before a retry, the same progress or text."""
    match record:
        case ScopeCommitted():
            return True
        case AgentEnded():
            return record.error is None
        case OfCall():
            agent = agents.get(record.agent)
            scope = agent.scopes.get(record.scope) if agent is not None else None
            return scope is not None and (record.key not in scope.numbers or _adds_to(scope, record))
    return False


def _by_person(
    call: OfCall,
    how: Literal["answered", "resolved", "edited"],
    result: Raw,
    blob: str = "",
    schema: str = "",
    *,
    effect: bool = True,
) -> StepCompleted:
    """The outcome that a person has given to a call."""
    return StepCompleted(
        agent=call.agent,
        scope=call.scope,
        no=call.no,
        step=call.step,
        args=call.args,
        n=call.n,
        call=call.call,
        effect=effect,
        result=result,
        blob=blob,
        how=how,
        schema=schema,
    )


def _adds_to(scope: Scope, record: OfCall) -> bool:
    """`record` is not the first one of its call."""
    match record:
        case StepCompleted():
            return record.key not in scope.done
        case StepFailed():
            return record.final and record.key not in scope.failed
        case StepProgress():
            return record.value != scope.progress.get(record.key)
        case PartialPromoted():
            return all(record.characters > known.characters for known in scope.promoted.get(record.key, ()))
    return False


def forget_crashes(agents: Agents, record: AnyRecord) -> None:
    """What `record` is about has come further, and so have the scopes that wait for its agent."""
    path, key = record.agent, getattr(record, "scope", ROOT)
    while True:
        for each in {key, ROOT} & agents[path].scopes.keys():
            agents[path].scopes[each].crashes = 0
        if not path:
            return
        path, key = path.rpartition("/")[0], agents[path].spawned_in
