"""The end of a scope: by an exception, with its record and whether the scope is entered again at once; by crashes; and
the questions about effects in doubt before anything commits or returns over them.

Each function that asks stops its caller itself. An uninterrupted block continues past other questions, but must not
commit over its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Literal, NamedTuple, TypeVar

from ...workspace.journal import Failure, Key, OfCall, PauseRequested, ScopeFailed, StepCompleted, StepStarted
from ...workspace.state import ROOT, STUCK_AFTER, Scope, crash_suspects
from ..agent import describe, of_storage
from ..live import Suspended
from . import raised
from .context import AgentContext, Context
from .open_scope import Claims, OpenScope

T = TypeVar("T")


class RaisedFromRecord(Exception):
    """The exception that ended a scope was only raised from the record, which has forgotten it now."""


async def until_fresh(enter: Callable[[], Awaitable[T]]) -> T:
    """Enter a scope; again, as long as it only ends by recorded exceptions."""
    while True:
        with suppress(RaisedFromRecord):
            return await enter()


def record_of(scope: OpenScope, error: BaseException) -> ScopeFailed | None:
    """The record of a scope that `error` has ended. None: no record, since the run must stop, or the disk fails. Call
    it before the scope is abandoned."""
    found = raised.calls_of(error, scope.place)
    is_replayed = raised.is_replayed(found)
    # A call that the agent has cancelled runs again unless the agent has made another one since.
    calls = (*found, *(key for key in scope.numbering.cancelled_last() if key not in found))
    is_cancelled = isinstance(error, asyncio.CancelledError) and bool(calls) and not scope.is_stopping
    if not is_cancelled and (not isinstance(error, Exception) or of_storage(error) is not None):
        return None
    failure = describe(error, scope.context.store.url)
    uncounted = is_replayed or is_cancelled
    calls = calls or _untold(scope)
    return ScopeFailed(agent=scope.agent.path, scope=scope.key, error=failure, calls=calls, uncounted=uncounted)


def _untold(scope: OpenScope) -> tuple[Key, ...]:
    """Calls whose failures the agent has handled before an error of its own. They run again: raised from the record,
    they would lead to that error at every start. Not those that it may have acted on: an effect, an agent, a plan or
    another scope came after."""
    recorded, agent = scope.recorded, scope.agent.recorded
    if scope.is_stopping or (scope.key == ROOT and (agent.has_plan or agent.results or len(agent.scopes) > 1)):
        return ()
    for path, each in scope.context.moment.agents.items():
        if path and path.rpartition("/")[0] == agent.path and each.spawned_in == scope.key:
            return ()
    effects = (*recorded.started, *recorded.settled, *(key for key, record in recorded.done.items() if record.effect))
    last = max((recorded.numbers.get(key, 0) for key in effects), default=0)
    return tuple(key for key, record in recorded.failed.items() if record.no > last)


def is_replayed(failed: ScopeFailed | None, error: BaseException) -> bool:
    """Whether the scope is entered again at once."""
    return failed is not None and failed.uncounted and isinstance(error, Exception)


def check_not_stuck(context: Context, scope: Scope) -> None:
    """A run whose process crashes again and again, with nothing new on record, is paused as stuck. Call it before
    `scope` is entered, also for the first time: the agent itself is one, too."""
    if scope.crashes < STUCK_AFTER:
        return
    titles = [repr(title) for title in crash_suspects(context.moment.agents)]
    ran = f" while {' and '.join(titles)} ran" if titles else ""
    why = f"the process has crashed {scope.crashes} times{ran}, with nothing new on record"
    context.stopping.pause(PauseRequested(reason=f"stuck: {why}", by="satchel"), Failure("Crashed", why))
    raise Suspended


class _Left(NamedTuple):
    call: StepStarted | StepCompleted
    why: Literal["unknown_outcome", "unreached", "uncalled"]


def ask_about(agent: AgentContext, scope: OpenScope) -> None:
    """Ask about the effects of one scope, and of the agents it has spawned. Suspended if there is a question."""
    _ask(agent, [*_in_scope(agent, scope), *_in_agents(agent, scope.key)])


def uncalled(agent: AgentContext, scopes: Mapping[str, Claims], *, ask: bool) -> dict[str, tuple[Key, ...]]:
    """The effects of these scopes that earlier attempts have done and the last one has not called: they are told to who
    watches the run. With `ask` a person is asked about them: Suspended if there are any."""
    found = {key: calls for key, claims in scopes.items() if (calls := claims.uncalled)}
    if (rehearsal := agent.context.rehearsal) is not None:
        for key, calls in found.items():
            rehearsal.at_uncalled(agent.recorded.scopes[key].title, calls, asks=ask)
    if ask:
        _ask(agent, [_Left(done, "uncalled") for calls in found.values() for done in calls])
    for key, calls in found.items():
        title = agent.recorded.scopes[key].title
        of = f" of {title!r}" if title else ""
        said = ", ".join(f"{done.step}{done.call}" for done in calls)
        agent.context.notice("uncalled", f"effects{of} were done before and not called again: {said}")
    return {key: tuple(done.key for done in calls) for key, calls in found.items()}


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
