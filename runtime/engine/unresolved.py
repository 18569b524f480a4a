"""Ask about effects in doubt before anything commits or returns over them.

Each function here stops its caller itself. An uninterrupted block continues past other questions, but must not commit
over its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from ...workspace.journal.records import Key, OfCall, StepCompleted, StepStarted
from .context import AgentContext
from .open_scope import OpenScope
from .stopping import Suspended


class _Left(NamedTuple):
    call: StepStarted | StepCompleted
    why: Literal["unknown_outcome", "unreached", "uncalled"]


def ask_about(agent: AgentContext, scope: OpenScope) -> None:
    """Ask about the effects of one scope, and of the agents it has spawned. Suspended if there is a question."""
    _ask(agent, [*_in_scope(agent, scope), *_in_agents(agent, scope.key)])


def uncalled(agent: AgentContext, scope: OpenScope, *, ask: bool) -> tuple[Key, ...]:
    """The effects that earlier attempts at the scope have done and this one has not called: they are told to who
    watches the run. With `ask` a person is asked about them: Suspended if there are any."""
    found = [scope.recorded.done[key] for key in scope.claims.unclaimed if key in scope.recorded.done]
    if ask:
        _ask(agent, [_Left(done, "uncalled") for done in found])
    if found:
        calls = ", ".join(f"{done.step}{done.call}" for done in found)
        of = f" of {scope.title!r}" if scope.title else ""
        agent.context.notice("uncalled", f"effects{of} were done before and not called again: {calls}")
    return tuple(done.key for done in found)


def ask_about_all(agent: AgentContext, root: OpenScope) -> None:
    """An agent can't finish while one of its effects is unresolved, even if its item was removed or ticked
    meanwhile."""
    scopes = {key: scope for key, scope in agent.recorded.scopes.items() if key != root.key}
    others = [_Left(started, "unreached") for scope in scopes.values() for started in scope.started.values()]
    _ask(agent, [*_in_scope(agent, root), *others, *_in_agents(agent, None)])


def _in_scope(agent: AgentContext, scope: OpenScope) -> Iterator[_Left]:
    recorded = agent.recorded.scopes.get(scope.key)
    if recorded is not None and recorded.started:
        for key, started in recorded.started.items():
            yield _Left(started, "unknown_outcome" if scope.claims.is_claimed(key) else "unreached")


def _in_agents(agent: AgentContext, spawned_in: str | None) -> Iterator[_Left]:
    """The same for effects of sub-agents that were not spawned again, or raised before they reached the effect. Those
    spawned in one scope, or all."""
    agents, below = agent.context.moment.agents, f"{agent.path}/" if agent.path else ""
    for path in agent.context.doubts.agents:
        if not path.startswith(below) or path == agent.path:
            continue
        child = below + path[len(below) :].partition("/")[0]
        if spawned_in is None or agents[child].spawned_in == spawned_in:
            for scope in agents[path].scopes.values():
                yield from (_Left(started, "unreached") for started in scope.started.values())


def _ask(agent: AgentContext, left: list[_Left]) -> None:
    for call, why in left:
        identity = {name: getattr(call, name) for name in OfCall.__struct_fields__}
        agent.context.doubts.ask(identity, why)
    if left:
        raise Suspended
