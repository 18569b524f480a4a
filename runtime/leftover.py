"""What asks about effects of which it is not known how they ended, before anything commits or returns over them."""

from __future__ import annotations

from typing import Literal

from ..workspace.agentmoment import ROOT
from ..workspace.record import OfCall, StepStarted
from .context import AgentContext
from .scope import ScopeRun


def ask_about(agent: AgentContext, scope: ScopeRun) -> None:
    """Of one scope, and of the agents it has spawned. Suspended if there is something to ask."""
    recorded = agent.recorded.scopes.get(scope.key)
    if recorded is not None and recorded.started:
        agent.context.journal.flush()  # what is known of them may only be waiting for company
        for key, started in recorded.started.items():
            _ask(agent, started, "unknown_outcome" if scope.is_claimed(key) else "unreached")
        agent.check_may_commit()
    _ask_about_agents(agent, scope.key)


def ask_about_all(agent: AgentContext, root: ScopeRun) -> None:
    """Nor does an agent end over one, even if its item was removed or ticked meanwhile."""
    ask_about(agent, root)
    for key, scope in agent.recorded.scopes.items():
        for started in list(scope.started.values()) if key != ROOT else ():
            _ask(agent, started, "unreached")
    agent.check_may_commit()
    _ask_about_agents(agent, None)


def _ask_about_agents(agent: AgentContext, spawned_in: str | None) -> None:
    """Nor over one of a sub-agent that was not spawned again, or has raised before it came to it. Of those spawned in
    one scope, or of all."""
    agents, below = agent.context.moment.agents, f"{agent.path}/" if agent.path else ""
    for path in agent.context.left_in_doubt:
        if not path.startswith(below) or path == agent.path:
            continue
        child = below + path[len(below) :].partition("/")[0]
        if spawned_in is None or agents[child].spawned_in == spawned_in:
            for scope in agents[path].scopes.values():
                for started in scope.started.values():
                    _ask(agent, started, "unreached")
    agent.check_may_commit()


def _ask(agent: AgentContext, started: StepStarted, why: Literal["unknown_outcome", "unreached"]) -> None:
    identity = {name: getattr(started, name) for name in OfCall.__struct_fields__}
    agent.context.ask(identity, why)
