"""The whole state of a run at one position of the journal, and how each record changes it.

Pure: no I/O, no clock. The same records in the same order give the same moment, on every machine and in every later
version. Each agent of the tree has a part of its own (agentmoment.py). A checkpoint is a moment written down
(checkpoint.py); the readable files are views of one (projection.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import Struct, field

from . import patch as json_patch
from .agentmoment import ROOT, AgentMoment
from .errors import Damaged, UsageError
from .names import DEFINITION
from .record import (
    AgentBegun,
    AgentEnded,
    AnyRecord,
    Closed,
    Doubt,
    Edited,
    Failure,
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
    ScopeFailed,
    StepCompleted,
    StepFailed,
    StepProgress,
    StepStarted,
)

Status = Literal["new", "running", "waiting", "paused", "sleeping", "failed", "completed"]


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
    until: str = ""  # when a sleeping run is to wake
    error: Failure | None = None
    clean: bool = True  # the last process to open it has closed it
    definition: dict[str, Any] | None = None  # what workspace.yaml said when it was last opened
    agents: dict[str, AgentMoment] = field(default_factory=lambda: {"": AgentMoment()})  # by path, parents first
    doubts: dict[str, Doubt] = {}  # open questions
    doubts_asked: int = 0
    usage: Usage = field(default_factory=Usage)

    @property
    def root(self) -> AgentMoment:
        return self.agents[""]

    @property
    def is_finished(self) -> bool:
        """It has completed, and nothing has been changed since that leaves something to do."""
        return self.status == "completed" and all(agent.is_finished for agent in self.agents.values())

    @property
    def outputs(self) -> dict[str, Output]:
        """What the agents have made, by path in the workspace."""
        return {
            f"{agent.folder}outputs/{name}": output
            for agent in self.agents.values()
            for name, output in agent.outputs.items()
        }

    def children(self, path: str) -> list[AgentMoment]:
        """The agents that `path` has spawned itself, in the order of their first start."""
        return [agent for agent in self.agents.values() if agent.path and agent.path.rpartition("/")[0] == path]

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

    # Records about the run as a whole, and what those about an agent change in it

    def _opened(self, line: Line, record: Opened) -> None:
        if record.run_id != self.run_id:
            raise ValueError(f"it belongs to the run {record.run_id!r}, this is {self.run_id!r}")
        self.clean = False
        if record.definition is not None:
            self.definition = record.definition
        if record.why == "run":
            self.attempt += 1
            self.status, self.reason, self.until, self.error = "running", "", "", None
        for agent in self.agents.values():
            agent.opened()

    def _closed(self, line: Line, record: Closed) -> None:
        self.clean = True
        if record.status:
            self.status, self.reason, self.error = record.status, record.reason, record.error
            self.until = record.until

    def _agent_begun(self, line: Line, record: AgentBegun) -> None:
        above = record.agent.rpartition("/")[0]
        if not record.agent or above not in self.agents:
            raise ValueError(f"the agent {record.agent!r} has none above it")
        agent = self.agents.setdefault(record.agent, AgentMoment(path=record.agent))
        agent.began(record)

    def _started(self, line: Line, record: StepStarted) -> None:
        self.agents[record.agent].started(record)
        self._goes_on(record)

    def _completed(self, line: Line, record: StepCompleted) -> None:
        self.agents[record.agent].completed(line, record)
        self.usage.steps += 1
        if record.effect:
            self._goes_on(record)

    def _committed(self, line: Line, record: ScopeCommitted) -> None:
        self.agents[record.agent].committed(line, record)
        self.usage.items += record.scope != ROOT

    def _doubt(self, line: Line, record: Doubt) -> None:
        self.agents[record.agent].asked(record)
        self.doubts[record.id] = record
        self.doubts_asked += 1

    def _resolved(self, line: Line, record: Resolved) -> None:
        doubt = self.doubts.pop(record.id)
        self.agents[doubt.agent].resolved(doubt, record)
        self._forget_questions_of_ended_scopes(self.agents[doubt.agent])

    def _edited(self, line: Line, record: Edited) -> None:
        if record.file == DEFINITION:
            self.definition = json_patch.apply(self.definition, record.patch)
            return
        self.agents[record.agent].edited(line, record)
        if record.step is not None:
            if self.status == "completed":
                self.status, self.reason = "paused", "a step was edited"
            scope, key = record.step.scope, record.step.key
            for doubt in list(self.doubts.values()):
                if (doubt.agent, doubt.scope) == (record.agent, scope) and key in (doubt.key, *doubt.others):
                    del self.doubts[doubt.id]
        self._forget_questions_of_ended_scopes(self.agents[record.agent])

    def _forget_questions_of_ended_scopes(self, agent: AgentMoment) -> None:
        """Where a person has ended a scope, there is no call to answer; one done again comes to ask by itself."""
        for doubt in list(self.doubts.values()):
            if doubt.agent == agent.path and doubt.scope not in agent.scopes:
                del self.doubts[doubt.id]

    def _goes_on(self, record: OfCall) -> None:
        """A call of this effect goes on, so no question about it is open any more."""
        for doubt in list(self.doubts.values()):
            same_effect = (doubt.agent, doubt.scope, doubt.step) == (record.agent, record.scope, record.step)
            if same_effect and (doubt.key == record.key or doubt.why == "unclaimed"):
                del self.doubts[doubt.id]


def _of_agent(apply: Callable[[AgentMoment, Line, Any], None]) -> Callable[[Moment, Line, Any], None]:
    return lambda moment, line, record: apply(moment.agents[record.agent], line, record)


_APPLY: dict[type[AnyRecord], Callable[[Moment, Line, Any], None]] = {
    Opened: Moment._opened,
    Closed: Moment._closed,
    AgentBegun: Moment._agent_begun,
    AgentEnded: _of_agent(lambda agent, line, record: agent.ended(record)),
    StepStarted: Moment._started,
    StepCompleted: Moment._completed,
    StepFailed: _of_agent(lambda agent, line, record: agent.failed(record)),
    StepProgress: _of_agent(lambda agent, line, record: agent.progressed(record)),
    PartialPromoted: _of_agent(lambda agent, line, record: agent.promoted(record)),
    ScopeBegun: _of_agent(lambda agent, line, record: agent.scope_begun(record)),
    ScopeFailed: _of_agent(lambda agent, line, record: agent.scope_failed(record)),
    ScopeCommitted: Moment._committed,
    PlanChanged: _of_agent(lambda agent, line, record: agent.plan_changed(record)),
    Message: _of_agent(AgentMoment.message),
    Doubt: Moment._doubt,
    Resolved: Moment._resolved,
    Edited: Moment._edited,
}
