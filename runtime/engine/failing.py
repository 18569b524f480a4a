"""The end of a scope by an exception: its record, and whether the scope is entered again at once; and by crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from ...workspace.journal.records import Failure, Key, PauseRequested, ScopeFailed
from ...workspace.state import ROOT, STUCK_AFTER, Scope, crash_suspects
from ..agent import describe, of_storage
from . import raised
from .context import Context
from .open_scope import OpenScope
from .stopping import Suspended

T = TypeVar("T")


class Replayed(Exception):
    """The exception that ended a scope was only raised from the record, which has forgotten it now."""


async def until_fresh(enter: Callable[[], Awaitable[T]]) -> T:
    """Enter a scope; again, as long as it only ends by recorded exceptions."""
    while True:
        with suppress(Replayed):
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
