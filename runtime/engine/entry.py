"""Enter an agent: call its function with the recorded state, from the top."""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from ...workspace.journal.records import Migrated, Patch, ScopeBegun, ScopeCommitted
from ...workspace.state import ROOT
from ..steps import current_scope
from . import failing, unresolved
from .live_state import first_state
from .migrating import bring_up
from .open_scope import current_call
from .scope import ScopeRun
from .session import Session


async def call(session: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the agent's function. When this returns or raises, nothing of the agent runs any more."""
    return await failing.until_fresh(lambda: _enter(session, args, kwargs))


async def _enter(session: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    session.run = session.context.make_run(session)
    if session.root_key not in session.recorded.scopes:
        session.journal.add(ScopeBegun(agent=session.path, scope=session.root_key, title=session.root_key[1:]))
        session.journal.flush()
    session.root = ScopeRun(session, session.root_key, "", session.recorded.scopes[session.root_key])
    tokens = current_scope.set(session.root), current_call.set(None)
    try:
        await _begin(session)
        session.check_going_on()
        result = await session.agent.function(session.run, *args, **kwargs)
        await session.root.work.quiet()
        session.check_going_on()
        session.root.work.made.check("the agent", session.store.url)
        unresolved.ask_about_all(session, session.root)
        unresolved.uncalled(session, session.root, ask=session.agent.effects == "strict")
        session.live.check_unchanged("when the agent returned")
        return result
    except BaseException as error:
        failed = failing.record_of(session.root, error)
        is_replayed = failing.is_replayed(failed, error)
        session.is_closing = not is_replayed
        session.root.abandon()
        await session.root.work.quiet()
        if failed is not None and failed.calls:
            session.journal.add(replace(failed, uncounted=True))
            session.journal.flush()
        if is_replayed:
            raise failing.Replayed from error
        raise
    finally:
        session.root.ended = True
        current_scope.reset(tokens[0])
        current_call.reset(tokens[1])


async def _begin(session: Session) -> None:
    """Take state and plan from the moment. For a new agent, record the first state; for data of an earlier version,
    migrate it."""
    if session.recorded.has_data and bring_up(session, session.agent, session.live.codec):
        session.publish_schemas()
    if not session.recorded.has_data:
        data = first_state(session.agent.initial_state(), session.live.codec)
        whole: Patch = [{"op": "add", "path": "", "value": Raw(data)}]
        if session.agent.version != session.recorded.data_version:  # first: data of that version must not be migrated
            session.journal.add(Migrated(agent=session.path, to=session.agent.version))
        session.journal.add(ScopeCommitted(agent=session.path, scope=ROOT, patch=whole))
        await session.root.durable()
        if not session.path:  # a checkpoint to return to, before the first stop
            await session.context.workspace.checkpoint_start()
    session.rollback()
