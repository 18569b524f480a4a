"""The whole state of a run at one position of the journal, and how each record changes it.

Pure: the same records in the same order give the same moment. Each agent has its own part (agent_state.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from ..base import DEFINITION, Damaged, DoesNotFit, Mode, Resume, UsageError
from ..journal import (
    NO_CRC,
    AgentBegun,
    AgentEnded,
    AnswersGrown,
    AnyRecord,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalRevoked,
    Before,
    Closed,
    Configured,
    Count,
    Doubt,
    Edited,
    Epoch,
    Failure,
    Fenced,
    FileWritten,
    Forced,
    Input,
    Kept,
    Line,
    Lineage,
    Message,
    Migrated,
    Opened,
    Output,
    PartialPromoted,
    Paused,
    PauseLate,
    PauseRequested,
    PlanChanged,
    Pruned,
    Resolved,
    ResourceChanged,
    RestoredFrom,
    Resumed,
    Rewound,
    Saved,
    ScopeBegun,
    ScopeCommitted,
    ScopeFailed,
    Spent,
    StepCompleted,
    StepFailed,
    StepProgress,
    StepRetry,
    StepStarted,
    TaskDone,
    TaskTaken,
    Uncalled,
    code_version,
)
from . import agent_state, earlier_moment, json_patch
from .agent_state import ROOT, AgentMoment
from .question_state import Questions, decision_of
from .scope_state import LogPlace, forget_leave, scope_of_task
from .statuses import OVER, TRANSITIONS, Status, after


class Usage(Struct):
    steps: int = 0
    items: int = 0
    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0  # of the processes that have ended

    def add_process(self, began: str, ended: str) -> None:
        """Count a process that has ended; `began` is empty if there was none. Times are UTC, ISO 8601."""
        if began:
            took = (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
            self.seconds = round(self.seconds + max(0.0, took), 3)


class Pause(Struct, omit_defaults=True):
    """A requested pause; it is in force once `paused_at` is set."""

    reason: str
    by: str
    requested_at: str
    mode: Mode = "drain"
    resume: Resume = "continue"
    until: str = ""
    paused_at: str = ""
    forced: bool = False
    file: str = ""  # the version of pause.yaml as Satchel left it, if it says no more than this

    @property
    def request(self) -> PauseRequested:
        """The request that it began with."""
        return PauseRequested(reason=self.reason, by=self.by, mode=self.mode, resume=self.resume, until=self.until)


class TaskFile(Struct, frozen=True):
    """The file of a finished task, and its folder below inbox/."""

    file: str
    sha256: str
    to: Literal["done", "moved"]


class Fired(Struct, frozen=True, omit_defaults=True):
    """A time of a schedule whose task was taken, or settled because the agent completed without opening its inbox.
    Times are UTC, ISO 8601."""

    due: str
    at: str  # when it was taken
    unopened: bool = False


FIRED = 128
"""How many times of each schedule are remembered: more than are made up for at once."""


class LostOwner(Struct, omit_defaults=True):
    """The run was restored from a backup, and its lost owner may have done effects after the last record there."""

    restored: RestoredFrom
    repeats: bool = False  # something was done or said again since, so calls may have other arguments than its own


class Moment(Questions, kw_only=True):
    """Everything that the journal says up to and including record `seq`."""

    run_id: str
    run_nonce: str = ""  # what the keys of effects are derived from; empty: from `run_id`
    forked: Lineage | None = None  # it began as a fork
    restored: str = ""  # the `id` of the last restoration from a backup
    lost: LostOwner | None = None  # as long as effects without a record may have been done
    is_replay: bool = False  # for a replay, and no person has resumed it yet
    lost_nonce: bool = False  # it differs from an earlier one: earlier effects have other keys
    seq: Annotated[int, Meta(ge=0, lt=10**12)] = 0  # short enough for a name
    epoch: Epoch = 0
    crc: str = NO_CRC  # of record `seq`; unknown for a moment that was rebuilt without a journal
    opening: str = ""  # the nonce of the opening that wrote it
    attempt: Count = 0
    ran: str = ""  # the nonce of the last opening by a process that runs the agent
    retries: Count = 0  # of calls that had failed
    crashes: Count = 0  # processes that have died of what the agent did
    anew_since: Epoch = 0  # of the last return or redo: what models were asked before is asked again
    takeovers: Count = 0  # starts that found the run left by a process that had not closed it
    status: Status = "new"
    reason: str = ""
    until: str = ""  # when a sleeping run wakes
    error: Failure | None = None
    clean: bool = True  # the last process to open it has closed it
    definition: dict[str, Any] | None = None  # the content of workspace.yaml at the last opening
    agents: dict[str, AgentMoment] = field(default_factory=lambda: {"": AgentMoment()})  # by path, parents first
    usage: Usage = field(default_factory=Usage)
    new_answers: list[str] = field(default_factory=list)  # to which questions, while no process called the agent
    pause: Pause | None = None  # requested, or in force
    lifted: str = ""  # `requested_at` of the last pause that is over
    instructions: str = ""  # a person's instructions when it was over
    resumed_at: str = ""  # when it was over, until the run stops normally
    unclean: bool = False  # the last stop was forced, or an emergency, and nothing was checked since
    tasks: dict[str, TaskTaken] = field(default_factory=dict)  # taken from the inbox and not done
    tasks_taken: int = 0  # ever
    tasks_done: dict[str, TaskFile] = field(default_factory=dict)  # by id; for how long, `_task_taken` says
    untaken: dict[str, str] = field(default_factory=dict)  # files that the completed agent did not take: their SHA-256
    fired: dict[str, list[Fired]] = field(default_factory=dict)  # by schedule, the last ones that were taken
    config: dict[str, Any] = field(default_factory=dict)  # what it worked with when it was last run
    url: str = ""  # its place at the last opening
    host: str = ""  # by a process of this machine
    opened_at: str = ""  # by the process that has it, or had it last
    boot: str = ""  # of its machine, from the opening of a process that runs the agent until it closes the workspace
    last_at: str = ""  # of the last record

    @property
    def before(self) -> Before:
        """What the next line of the journal may leave out."""
        return Before(self.crc, self.last_at, self.epoch, self.opening)

    @property
    def root(self) -> AgentMoment:
        return self.agents[""]

    @property
    def is_new(self) -> bool:
        """No process has opened it yet. In a bucket one may have written its fence and died."""
        return not self.opened_at and (not self.seq or bool(self.opening))

    @property
    def kind(self) -> str:
        """What a program holds it as; empty for the run of an agent."""
        return str((self.definition or {}).get("kind", ""))

    @property
    def is_finished(self) -> bool:
        """Whether it has completed, and no later change leaves something to do."""
        return self.status == "completed" and all(agent.is_finished for agent in self.agents.values())

    @property
    def is_over(self) -> bool:
        """There is nothing left to run, to pause or to stop."""
        return self.status == "cancelled" or self.is_finished

    @property
    def code(self) -> str:
        """The version of the agent's code that the run has worked with last: a commit of git, if its folder is at one,
        and the start of the hash of its files. Empty before the first start."""
        return code_version(self.config)

    @property
    def is_interrupted(self) -> bool:
        """Whether the last process has ended without bringing the agent to a stop. If the run is paused or has failed,
        that process did not run the agent, unless it is a replay, which is paused from its start. A held workspace has
        no agent."""
        is_at_rest = self.status in ("paused", "failed", "held") and not self.is_replay
        return self.status == "running" or not (self.clean or is_at_rest)

    @property
    def row_logs(self) -> Iterator[LogPlace]:
        """The conversations and logs of all agents."""
        return (place for agent in self.agents.values() for place in agent.row_logs)

    @property
    def outputs(self) -> dict[str, Output]:
        """The agents' outputs, by path in the workspace."""
        return {
            f"{agent.folder}outputs/{name}": output
            for agent in self.agents.values()
            for name, output in agent.outputs.items()
        }

    @property
    def uncalled(self) -> list[str]:
        """The effects that were done and not called again before their item, or the agent, was finished, for people."""
        return [
            f"{done.step}{done.call} of {repr(title) if title else agent.path or 'the agent'}"
            for agent in self.agents.values()
            for title, done in agent.uncalled
        ]

    def children(self, path: str) -> list[AgentMoment]:
        """The agents that `path` has spawned itself, in the order of their first start."""
        return [agent for agent in self.agents.values() if agent.path and agent.path.rpartition("/")[0] == path]

    def apply(self, lines: Iterable[Line]) -> None:
        """Move on to the position of the last of `lines`. Damaged if a record does not fit the earlier ones."""
        for line in lines:
            try:
                self.add(line)
            except DoesNotFit as error:
                raise Damaged(
                    f"record {line.seq} ({line.record.__struct_config__.tag}) does not fit the records before it",
                    path="journal",
                    why=error.why,
                    remedy="take the folder journal/ from a backup; without one "
                    f"`satchel recover --truncate-at {line.seq - 1}` goes back to the record before it",
                ) from error

    def add(self, line: Line) -> None:
        """Move on to the position of `line`. DoesNotFit, with nothing changed, if its record does not fit the earlier
        ones."""
        try:
            self._check_follows(line)
            is_further = agent_state.comes_further(self.agents, line.record)
            _APPLY[type(line.record)](self, line, line.record)
        except (LookupError, ValueError, TypeError, UsageError) as error:
            raise DoesNotFit(
                f"a record ({line.record.__struct_config__.tag}) does not fit the records before it",
                why=str(error) if type(error) in (LookupError, ValueError) else f"{type(error).__name__}: {error}",
                remedy="nothing of it was kept; it belongs to something that has ended or never began",
            ) from error
        if self.lost is not None and _repeats(line.record):
            self.lost.repeats = True
        if is_further:
            agent_state.forget_crashes(self.agents, line.record)
        self.seq, self.epoch, self.crc, self.last_at = line.seq, line.epoch, line.crc, line.at
        self.opening = line.opening or self.opening

    def _check_follows(self, line: Line) -> None:
        """ValueError if it comes from another process and no record says when that process began."""
        if type(line.record) in _BEGINS_OPENING:
            if line.epoch < self.epoch:
                raise ValueError(f"it is of epoch {line.epoch}, and epoch {self.epoch} came before it")
        elif line.opening and line.opening != self.opening:
            raise ValueError(f"it is of the opening {line.opening!r}, and {self.opening!r} is the last that began")

    # Records about the run as a whole, and what those about an agent change in it. Each method raises before it has
    # changed anything, or not at all

    def _opened(self, line: Line, record: Opened) -> None:
        if record.run_id != self.run_id:
            raise ValueError(f"it belongs to the run {record.run_id!r}, this is {self.run_id!r}")
        if not self.clean:  # the earlier process has not recorded its end
            self.usage.add_process(self.opened_at, self.last_at)
        if record.crashed:
            questions = (*self.approvals.values(), *self.doubts.values())
            agent_state.count_crash(self.agents, {(asked.agent, asked.scope) for asked in questions})
            self.crashes += 1
        self.clean, self.opened_at, self.boot = False, line.at, record.boot
        self.url, self.host, self.forked = record.url, record.host, record.forked or self.forked
        if record.run_nonce:
            self.run_nonce, self.lost_nonce = record.run_nonce, record.found == "files"
        self.tasks_done.clear()
        if record.restored is not None:
            self.restored = record.restored.id
            self.lost = None if record.restored.certain else LostOwner(record.restored)
            if self.lost is not None:
                for agent in self.agents.values():
                    forget_leave((*agent.scopes.values(), *agent.past.values()))
        if record.definition is not None:
            self.definition = record.definition
        if record.why in ("run", "replay"):
            self.attempt += 1
            self.ran = line.opening
            self.takeovers += record.found == "crash"
            self.is_replay = record.why == "replay"
            self.status = after("replayed" if self.is_replay else "started", self.status)
            self.reason = "the replay was interrupted" if self.is_replay else ""
            self.until, self.error, self.root.result = "", None, None
            self.new_answers.clear()
        elif record.why == "hold":
            self.status = after("held", self.status)
        for agent in self.agents.values():
            agent.opened()

    def _closed(self, line: Line, record: Closed) -> None:
        self.usage.add_process(self.opened_at, line.at)
        self.clean, self.boot = True, ""
        self.tasks_done.clear()
        if record.status in OVER:
            waiting = {id: asked for id, asked in self.approvals.items() if asked.back is not None}
            self.approvals = waiting if record.status == "completed" else {}  # no call waits for an answer any more
            self.untaken = record.untaken
        if record.status == "cancelled":
            self.root.cancelled()
        if record.status == "completed":
            self.root.result = Kept(record.result, record.blob)
        if record.status:
            self.resumed_at = ""
            self.status = after(record.status, self.status)
            self.reason, self.error, self.until = record.reason, record.error, record.until
        if self.pause is not None:
            self.pause = replace(self.pause, file=record.pause_file)
            if record.status in OVER:
                self.lifted, self.pause = self.pause.requested_at, None

    # Pauses

    def _pause_requested(self, line: Line, record: PauseRequested) -> None:
        self.pause = Pause(
            reason=record.reason,
            by=record.by,
            requested_at=line.at,
            mode=record.mode,
            resume=record.resume,
            until=record.until,
        )
        self.unclean |= record.mode == "emergency"
        self.status = after("asked to pause", self.status)

    def _forced(self, line: Line, record: Forced) -> None:
        self.unclean = True

    def _paused(self, line: Line, record: Paused) -> None:
        if self.pause is None:
            raise ValueError("no pause was requested")
        self.pause = replace(self.pause, paused_at=line.at, forced=record.forced)
        self.status = after("paused", self.status)
        self.reason, self.error, self.until = self.pause.reason, record.error, ""

    def _resumed(self, line: Line, record: Resumed) -> None:
        self.lifted = self.pause.requested_at if self.pause else self.lifted
        self.pause, self.unclean, self.instructions = None, False, record.instructions
        self.resumed_at = line.at
        agent_state.allow_one_more(self.agents)
        self.status = after("pause withdrawn", self.status)
        if record.restart:
            for agent in self.agents.values():
                agent.restart_calls()

    # Questions to people

    def _approval_asked(self, line: Line, record: ApprovalAsked) -> None:
        if record.back is None:
            self.agents[record.agent].asked_approval(record)
        self.ask_approval(record, line.at)

    def _approval_answered(self, line: Line, record: ApprovalAnswered) -> None:
        asked = self.approvals[record.id]
        if len(record.arguments) and not len(asked.arguments):
            raise ValueError(f"it changes arguments, and the question {record.id!r} has none")
        self.check_standing(asked, record)
        if asked.back is None:
            self.agents[asked.agent].answered_approval(line, asked, record)
        del self.approvals[record.id]
        self._note_answer(record.id)
        self.remember(record, record.decision, line.at, asked)
        self.note_standing(asked, record, self._code, line.at)

    def _approval_revoked(self, line: Line, record: ApprovalRevoked) -> None:
        self.take_back(self.revoke(record, line.at), line.at)

    def take_back(self, told: Iterable[ApprovalAsked], at: str) -> None:
        """Ask again about calls that were approved under what no longer counts, and have not begun."""
        for asked in told:
            agent = self.agents.get(asked.agent)
            scope = None if agent is None else agent.scopes.get(asked.scope)
            if scope is not None and scope.done.pop(asked.key, None) is not None:
                self.ask_again(asked, at)

    def _note_answer(self, id: str) -> None:
        if self.status == "waiting":
            self.new_answers.append(id)

    # The inbox, and costs

    def _task_taken(self, line: Line, record: TaskTaken) -> None:
        """A process that takes a task, or opens or closes the workspace, has put the files of finished tasks away. So
        they need not be remembered longer, and an equal file that comes later is a new task."""
        is_firing = record.id not in self.tasks and record.kind == "schedule"
        if is_firing:
            datetime.fromisoformat(record.due)  # a ValueError: the record does not fit
        self.tasks_done.clear()
        if record.id not in self.tasks:
            self.tasks_taken += 1
            if is_firing:
                fired = self.fired.setdefault(record.schedule, [])
                fired[:] = [*fired, Fired(record.due, line.at, record.unopened)][-FIRED:]
        self.tasks[record.id] = record

    def _task_done(self, line: Line, record: TaskDone) -> None:
        task = self.tasks.pop(record.id, None)
        if task is None:
            raise LookupError(f"the task {record.id!r} was not taken, or is done already")
        self.tasks_done[record.id] = TaskFile(task.file, task.sha256, "moved" if record.moved_to else "done")
        root, scope = self.root, scope_of_task(record.id)
        if scope not in root.scopes:  # it has ended, and nothing enters it again
            root.results.pop(scope, None)
            root.past.pop(scope, None)

    def _spent(self, line: Line, record: Spent) -> None:
        scope = self.agents[record.agent].scopes.get(record.scope)
        self.usage.tokens += record.tokens
        self.usage.usd = round(self.usage.usd + record.usd, 9)
        if record.n is not None and scope is not None:
            scope.spent[record.kind] = max(scope.spent.get(record.kind, 0), record.n + 1)

    def _configured(self, line: Line, record: Configured) -> None:
        self.config = record.config
        self.take_back(self.drop_standing(self._code, line.at), line.at)

    @property
    def _code(self) -> str:
        """SHA-256 of the agent's code."""
        return str(self.config.get("agent_sha256", ""))

    def _agent_begun(self, line: Line, record: AgentBegun) -> None:
        above = record.agent.rpartition("/")[0]
        if not record.agent or above not in self.agents:
            raise ValueError(f"the agent {record.agent!r} has no parent agent")
        agent = self.agents.setdefault(record.agent, AgentMoment(path=record.agent))
        agent.began(record)

    def _agent_ended(self, line: Line, record: AgentEnded) -> None:
        self.agents[record.agent].ended(record)
        if not record.error:
            self.forget_below(record.agent)

    def _started(self, line: Line, record: StepStarted) -> None:
        self.agents[record.agent].started(record)
        self.forget_gone_on(record)
        self.note_begun(record)

    def _completed(self, line: Line, record: StepCompleted) -> None:
        self.agents[record.agent].completed(line, record)
        if not record.effect:
            self.note_begun(record)
        self.note_ended(record)
        self.usage.steps += 1
        if record.effect:
            self.forget_gone_on(record)

    def _retried(self, line: Line, record: StepRetry) -> None:
        self.agents[record.agent].retried(line, record)
        self.retries += 1

    def _committed(self, line: Line, record: ScopeCommitted) -> None:
        self.agents[record.agent].committed(line, record)
        if record.scope != ROOT:
            self.forget_in(record.agent, record.scope)
        self.usage.items += record.scope != ROOT

    def _doubt(self, line: Line, record: Doubt) -> None:
        self.agents[record.agent].asked(record)
        self.ask_doubt(record, line.at)

    def _resolved(self, line: Line, record: Resolved) -> None:
        if (doubt := self.doubts.get(record.id)) is None:
            raise LookupError(f"the question {record.id!r} is not open")
        agent = self.agents[doubt.agent]
        said = decision_of(doubt, record, agent.open_scope(doubt.scope).numbers)
        agent.resolved(doubt, record)
        if record.outcome == "none_since":
            self.lost = None
            self.doubts = {id: each for id, each in self.doubts.items() if id == record.id or each.why != "lost"}
        (self.note_ended if record.outcome == "done" else self.note_decided)(doubt)
        del self.doubts[record.id]
        self._note_answer(record.id)
        self.remember(record, said, line.at)
        self.forget_ended(doubt.agent, self.agents[doubt.agent].scopes)

    def _scope_begun(self, line: Line, record: ScopeBegun) -> None:
        self.agents[record.agent].scope_begun(record)
        self.forget_ended(record.agent, self.agents[record.agent].scopes)  # it may have had another name

    def _rewound(self, line: Line, record: Rewound) -> None:
        earlier_moment.apply(record.agents, self.agents)
        self.anew_since = line.epoch
        for path, agent in self.agents.items():
            self.forget_ended(path, agent.scopes)
        if self.pause is None and self.status in TRANSITIONS["rewound"].of:
            self.status, self.reason, self.until, self.error = after("rewound", self.status), "rewound", "", None

    def _edited(self, line: Line, record: Edited) -> None:
        if record.file == DEFINITION:
            self.definition = json_patch.apply(self.definition, record.patch)
            return
        self.agents[record.agent].edited(line, record)
        if record.step is not None or record.redone:
            self.anew_since = line.epoch
        if record.step is not None:
            if self.status == "completed":
                self.status, self.reason = after("step edited", self.status), "a step was edited"
            self.forget_call(record.agent, record.step.scope, record.step.key)
        self.forget_ended(record.agent, self.agents[record.agent].scopes)


def _of_agent(apply: Callable[[AgentMoment, Line, Any], None]) -> Callable[[Moment, Line, Any], None]:
    return lambda moment, line, record: apply(moment.agents[record.agent], line, record)


_SAID_AGAIN = (ApprovalAnswered, Edited, Migrated, PlanChanged, Rewound, StepFailed, TaskTaken)


def _repeats(record: AnyRecord) -> bool:
    """Whether the lost owner of a restored run may have recorded something else in its place, on which the arguments of
    later calls depend."""
    is_call = isinstance(record, StepCompleted) and record.how not in ("verified", "resolved")
    return is_call or isinstance(record, _SAID_AGAIN)


_BEGINS_OPENING = frozenset((Opened, Fenced))
_APPLY: dict[type[AnyRecord], Callable[[Moment, Line, Any], None]] = {
    Opened: Moment._opened,
    Closed: Moment._closed,
    AgentBegun: Moment._agent_begun,
    AgentEnded: Moment._agent_ended,
    StepStarted: Moment._started,
    StepCompleted: Moment._completed,
    StepFailed: _of_agent(lambda agent, line, record: agent.failed(record)),
    StepRetry: Moment._retried,
    StepProgress: _of_agent(lambda agent, line, record: agent.progressed(record)),
    PartialPromoted: _of_agent(lambda agent, line, record: agent.promoted(record)),
    ScopeBegun: Moment._scope_begun,
    ScopeFailed: _of_agent(lambda agent, line, record: agent.scope_failed(record)),
    ScopeCommitted: Moment._committed,
    Uncalled: _of_agent(lambda agent, line, record: agent.left_uncalled(record)),
    PlanChanged: _of_agent(lambda agent, line, record: agent.plan_changed(record)),
    Message: _of_agent(AgentMoment.message),
    FileWritten: _of_agent(AgentMoment.file_written),
    Doubt: Moment._doubt,
    Resolved: Moment._resolved,
    Edited: Moment._edited,
    PauseRequested: Moment._pause_requested,
    Forced: Moment._forced,
    Paused: Moment._paused,
    Resumed: Moment._resumed,
    ApprovalAsked: Moment._approval_asked,
    ApprovalAnswered: Moment._approval_answered,
    ApprovalRevoked: Moment._approval_revoked,
    TaskTaken: Moment._task_taken,
    TaskDone: Moment._task_done,
    Spent: Moment._spent,
    AnswersGrown: lambda moment, line, record: agent_state.forget_all_crashes(moment.agents),
    Rewound: Moment._rewound,
    Configured: Moment._configured,
    Input: _of_agent(lambda agent, line, record: agent.got_input(record)),
    **dict.fromkeys((Fenced, PauseLate, Pruned, ResourceChanged, Saved), lambda moment, line, record: None),
    Migrated: _of_agent(lambda agent, line, record: agent.migrated(record)),
}
