"""Enter an agent: migrate its data and record that, then call its function with the recorded state, from the top."""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from ...workspace.base import Refused
from ...workspace.journal import Migrated, Patch, PauseRequested, ScopeBegun, ScopeCommitted
from ...workspace.state import ROOT
from ..agent import Agent, check_known, describe, migrate
from ..live import Suspended, first_state
from ..steps import Codec, current_scope
from .context import AgentContext
from .open_scope import current_call
from .scope import RaisedFromRecord, ScopeRun, ask_about_all, is_entered_again, record_of, until_fresh
from .session import Session


def bring_up(agent: AgentContext, declared: Agent, codec: Codec) -> bool:
    """Convert the recorded data to the newest version, without the keys that the agent drops. Returns whether there was
    anything to do; durable when it returns. If there is no way, the run is paused (it has not failed), and Suspended is
    raised."""
    context, recorded = agent.context, agent.recorded
    was = recorded.data_version
    try:
        migrated = migrate(recorded.data, was, declared.migrations, codec, recorded.folder)
        gone = check_known(migrated.data, codec, declared.drop, declared.unknown, recorded.folder)
    except Refused as error:
        context.stopping.pause(PauseRequested(reason=str(error), by="satchel"), describe(error, context.store.url))
        raise Suspended from error
    if not migrated.steps and not gone:
        return False
    for step in migrated.steps:
        context.journal.add(Migrated(agent=agent.path, to=step.to, patch=step.patch))
    if gone:
        context.journal.add(Migrated(agent=agent.path, to=recorded.data_version, patch=gone))
    context.journal.flush()
    whose = f"of {agent.path} " if agent.path else ""
    now = recorded.data_version
    if migrated.steps:
        context.workspace.report.add_late("done", f"the data {whose}were migrated from version {was} to {now}")
    if gone:
        names = ", ".join(str(each["path"])[1:] for each in gone)
        context.workspace.report.add_late("done", f"the agent has dropped from the data {whose}what it names: {names}")
    context.projector.mark(context.workspace.files[agent.path].state)
    return True


async def call(session: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the agent's function. When this returns or raises, nothing of the agent runs any more."""
    return await until_fresh(lambda: _enter(session, args, kwargs))


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
        await session.quiet()
        session.check_going_on()
        session.root.work.made.check("the agent", session.store.url)
        ask_about_all(session, session.root)
        session.record_uncalled()
        session.live.check_unchanged("when the agent returned")
        return result
    except BaseException as error:
        failed = record_of(session.root, error)
        is_replayed = is_entered_again(failed, error)
        session.is_closing = not is_replayed
        session.root.abandon()
        if session.parallel is not None and session.parallel.named:
            session.parallel.close()
        await session.quiet()
        if failed is not None and failed.calls:
            session.journal.add(replace(failed, uncounted=True))
            session.journal.flush()
        if is_replayed:
            raise RaisedFromRecord from error
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
