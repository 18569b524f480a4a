"""`run.spawn`: sub-agents, each with its own plan, state and folder, in the journal of the run."""

from __future__ import annotations

import asyncio
import re
from hashlib import blake2b
from typing import Any

from ...workspace.base import AgentError, StorageFailed, UsageError
from ...workspace.journal import blobs
from ...workspace.journal.records import AgentBegun, AgentEnded
from ..agent import Agent, Parameters, describe
from ..engine import PREVIEW, ScopeRun, Session, check_outside_steps, entry, returned
from ..live import Suspended
from ..steps import Codec, current_scope, result_codec

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


async def spawn(session: Session, agent: Agent, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `agent` as the sub-agent `name` of `session`, or return its recorded result."""
    if not isinstance(agent, Agent):
        raise UsageError(f"run.spawn() takes an agent, not {agent!r}", remedy="decorate the function with @agent")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} can't be a sub-agent's name",
            why="it names the folder of the sub-agent",
            remedy="use up to 40 lower-case letters, digits, - and _, with a letter or digit first",
        )
    scope = _scope_of(session, name)
    context = session.context
    path = f"{session.path}/{name}" if session.path else name
    if path in context.agents.names:
        raise AgentError(f"the agent {path!r} is already running", remedy="give each sub-agent a name of its own")
    session.check_going_on()
    parameters = Parameters(agent.function, f"the agent {name}")
    encoded = parameters.of_call(args, kwargs)
    args, kwargs = parameters.call_of(encoded)
    digest = blake2b(encoded, digest_size=8).hexdigest()
    codec = result_codec(agent.function, f"the agent {path}")
    known = context.moment.agents.get(path)
    if known is not None and known.result is not None and known.args == digest:
        context.tally.answered += 1
        return codec.recorded(blobs.fetch(session.store, known.result), keeps_unknown=agent.unknown == "keep")
    begun: AgentBegun | None = None
    if known is None or known.has_ended or (known.args, known.spawned_in) != (digest, scope.key):
        preview = context.redactor.json(encoded)[1:-1][:PREVIEW].decode(errors="ignore")
        if context.rehearsal is not None:
            await context.rehearsal.at_scope(context.stopping, f"the agent {path}")
        begun = AgentBegun(agent=path, scope=scope.key, args=digest, call=f"({preview})")
    context.agents.names.add(path)
    try:
        with scope.work:
            return await _run(session, scope, agent, begun, path, args, kwargs, codec)
    finally:
        context.agents.names.remove(path)


async def _run(
    session: Session,
    scope: ScopeRun,
    agent: Agent,
    begun: AgentBegun | None,
    path: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    codec: Codec,
) -> Any:
    """Enter the agent and return its result in the form of a recorded one."""
    context = session.context
    for needed in agent.resources:
        if needed.name not in session.run.resources:
            raise UsageError(
                f"the agent {path!r} needs the resource {needed.name!r}, which is not open",
                remedy="declare it at the run's own agent: its resources serve all sub-agents",
            )
    if begun is not None:
        session.journal.add(begun)
        await scope.durable()
        session.projector.want(session.files.state)
    if path not in context.workspace.files:
        context.workspace.join(path)
    if context.watch:
        context.watch.agent_begun(path)
    try:
        child = context.agents.running[path] = Session(context, agent, path, scope)
        child.publish_schemas()
        result = await _outcome(child, args, kwargs)
        kept, answer = returned(context.workspace, result, f"the result of the agent {path}", codec)
        session.journal.add(AgentEnded(agent=path, result=kept.result, blob=kept.blob))
        await scope.durable()
    except StorageFailed:
        raise
    except asyncio.CancelledError as error:
        if context.stopping.suspension:
            context.stopping.drain.has_told = True
            raise Suspended from error  # the caller's scope stops too, even if it catches this
        raise
    except Exception as error:
        if context.stopping.suspension:
            context.stopping.drain.has_told = True
            raise Suspended from error  # it has raised an error of its own instead
        session.journal.add(AgentEnded(agent=path, error=describe(error, session.store.url)))
        session.journal.flush()
        raise
    finally:
        context.agents.running.pop(path, None)
        for files in (session.files, context.workspace.files[path]):
            session.projector.want(files.state)
        if context.watch:
            context.watch.agent_ended(path)
    return answer


async def _outcome(child: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the agent returns or raises, in a task of its own. If the wait for it is cancelled, the agent is abandoned;
    a person's request or a second cancellation also cancels its task."""
    begun = asyncio.Event()

    async def call() -> Any:
        await begun.wait()  # an eager task would run before it could be cancelled
        return await entry.call(child, args, kwargs)

    task = child.task = asyncio.create_task(call(), name=child.path)
    begun.set()
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        child.abandon()
        if child.context.stopping.suspension:
            child.context.stopping.drain.has_told = True
            task.cancel()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # it has been seen
        raise
    return task.result()


def _scope_of(session: Session, name: str) -> ScopeRun:
    """The scope of `session` that contains the call."""
    check_outside_steps(f"the agent {name!r} was spawned")
    scope = session.here or session.root
    if current_scope.get() is not scope:
        raise AgentError(
            f"the agent {name!r} was spawned while a scope ran: {scope.title!r}",
            why="one scope at a time commits",
            remedy="spawn it in that scope's function, with the `run` that this function got",
        )
    if scope.ended:
        raise AgentError(f"the agent {name!r} was spawned after its scope had ended", remedy="await it before")
    return scope
