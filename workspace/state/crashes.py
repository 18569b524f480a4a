"""The crashes of items: after how many of them, with nothing new on record in between, a run is stuck.

Pure. A crash counts for every scope that is open then, the run's agent itself included, except for one that waits: for
a person's answer, or in `run.sleep`. No record says which of several parallel items has ended the process, so it counts
for each; but one that comes further afterwards counts from 0 again. The agent itself comes further with any of them: it
counts where the process dies so soon that not even the beginning of an item is on record.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from ..journal.records import (
    AgentEnded,
    AnyRecord,
    OfCall,
    PartialPromoted,
    ScopeCommitted,
    StepCompleted,
    StepFailed,
    StepProgress,
)
from .agent_state import CANCEL, ROOT, SLEEP, AgentMoment
from .scope_state import STUCK_AFTER, Scope

Agents = Mapping[str, AgentMoment]
"""The agents of a run, by path."""


def count(agents: Agents, asked: Container[tuple[str, str]]) -> None:
    """A process has crashed. `asked`: the scopes, by agent and key, that wait for a person's answer."""
    for path, agent in agents.items():
        for key, scope in () if agent.has_ended else agent.scopes.items():
            is_asleep = any(call[0] == SLEEP for call in scope.progress)
            is_own = key == CANCEL or (key == ROOT and path)  # a sub-agent's own calls are a part of its caller's item
            if not is_own and (path, key) not in asked and not is_asleep:
                scope.crashes += 1


def suspects(agents: Agents) -> list[str]:
    """The titles of the stuck items and named scopes. If only the agent itself is stuck, of those that were open at any
    of its crashes."""
    counted = [scope for agent in agents.values() for key, scope in agent.scopes.items() if key != ROOT]
    stuck = [scope.title for scope in counted if scope.crashes >= STUCK_AFTER]
    return stuck or [scope.title for scope in counted if scope.crashes]


def try_again(agents: Agents) -> None:
    """The run is resumed: a stuck item has one more attempt, as after its failures."""
    for agent in agents.values():
        for scope in agent.scopes.values():
            scope.crashes = min(scope.crashes, STUCK_AFTER - 1)


def says_more(agents: Agents, record: AnyRecord) -> bool:
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


def forget(agents: Agents, record: AnyRecord) -> None:
    """What `record` is about has come further, and so have the scopes that wait for its agent."""
    path, key = record.agent, getattr(record, "scope", ROOT)
    while True:
        for each in {key, ROOT} & agents[path].scopes.keys():
            agents[path].scopes[each].crashes = 0
        if not path:
            return
        path, key = path.rpartition("/")[0], agents[path].spawned_in
