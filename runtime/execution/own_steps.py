"""What an agent waits for, and a crash does not lose: `run.sleep`, `run.pause`, and the sub-agents of `run.spawn`.

For their scope the first two are steps: the result is that the time is over, or that the agent has asked for the pause.
A sub-agent has its own plan, state and folder, in the journal of the run.
"""

from __future__ import annotations

import asyncio
import math
import re
import typing
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ...workspace.base import AgentError, Resume, StorageFailed, UsageError, arguments, time_text
from ...workspace.formats import decoder
from ...workspace.journal import AgentBegun, AgentEnded, PauseRequested, StepCompleted, StepProgress, blobs
from ...workspace.state import SLEEP
from ..agent import Agent, Codec, OwnStep, Parameters, current_scope, describe, result_codec
from ..engine import PREVIEW, OpenCall, ScopeRun, Session, check_outside_steps, entry, performing, returned
from ..live import Suspended, Suspension

_IN_PROCESS = 10.0
"""Up to so many seconds the process waits itself."""


_CLOSE = 1.0
"""Two waits until a time are the same if their lengths differ by fewer seconds."""


class _Kept(Struct, omit_defaults=True):
    """The record of a wait: its progress, and its result once it is over."""

    until: str  # UTC, ISO 8601
    wait: str  # its identity
    seconds: float | None = None  # of a wait until a time: how far away it was at the beginning


_kept = decoder(_Kept)


async def sleep(scope: ScopeRun, duration: float | timedelta | datetime) -> None:
    """Return when the time is over. A wait is identified by its scope, its length or end, and the number of equal ones
    before it. A wait until a time is also the same if that time is as far away as before: `datetime.now() + hour` is
    another time at each start, and a run that waited for each would never end."""
    try:
        end = _end(duration)
        kept = _Kept(time_text(end), str(duration))
    except OverflowError:
        raise UsageError("run.sleep() got a time that is too far away", why=f"got {duration!r:.80}") from None
    if isinstance(duration, datetime):
        kept.seconds = (end - datetime.now(UTC)).total_seconds()
        kept.wait = _known(scope, kept.wait, kept.seconds)
    await scope.call(_Sleep(kept), (kept.wait,), {})


def _known(scope: ScopeRun, wait: str, seconds: float) -> str:
    """The identity of a wait that an earlier attempt began and this one has not called, if it is the same wait."""
    recorded = scope.recorded
    found = {key: value for key, value in recorded.progress.items() if key[0] == SLEEP}
    found |= {key: done.result for key, done in recorded.done.items() if key[0] == SLEEP}
    close = ""
    for key in sorted(filter(scope.numbering.is_unclaimed, found), key=recorded.numbers.__getitem__):
        with suppress(msgspec.ValidationError):  # a person has edited it
            kept: _Kept = _kept.decode(found[key])
            if kept.wait == wait:
                return wait
            if not close and kept.seconds is not None and abs(kept.seconds - seconds) < _CLOSE:
                close = kept.wait
    return close or wait


class _Sleep(OwnStep[..., Any]):
    def __init__(self, kept: _Kept):
        super().__init__(_wait, name=SLEEP, retry=None, on_partial="restart")
        self._kept = kept

    async def perform(self, call: Any) -> Any:
        """Wait for the rest: in this process if it is short, else without a process."""
        assert isinstance(call, OpenCall)
        scope, context = call.scope, call.scope.context
        saved = scope.recorded.progress.get(call.key)
        if saved is not None:
            self._kept = _kept.decode(saved)
        else:
            context.journal.add(StepProgress(**call.identity(), value=Raw(msgspec.json.encode(self._kept))))
            context.journal.flush()
        if context.observer:
            context.observer.waits(call)
        until = self._kept.until
        left = (datetime.fromisoformat(until) - datetime.now(UTC)).total_seconds()
        if left > _IN_PROCESS:
            context.stopping.suspend(Suspension("sleeping", "the agent sleeps", until))
            raise Suspended
        scope.work.rest(call)
        await asyncio.sleep(max(0.0, left))
        scope.check_going_on()
        return await performing.keep(call, msgspec.json.encode(self._kept))


def _wait(duration: str) -> Any:
    """What identifies a wait."""


def _end(duration: float | timedelta | datetime) -> datetime:
    if isinstance(duration, datetime):
        return arguments.aware("run.sleep()", duration, "the run may resume on another machine")
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise UsageError("run.sleep() takes seconds, a timedelta or a datetime", why=f"got {duration!r}")
    return datetime.now(UTC) + timedelta(seconds=max(0, seconds))  # less than none: the time is over


async def pause(scope: ScopeRun, reason: str, resume: Resume) -> None:
    """Ask once. A request is identified by its scope, its text, and the number of equal ones before it. So a resumed
    run does not stop there again."""
    if not isinstance(reason, str) or not reason.strip():
        raise UsageError("run.pause() takes a reason", why=f"got {reason!r}")
    arguments.text("the reason in run.pause()", reason)
    if resume not in (allowed := typing.get_args(Resume)):
        raise UsageError(f"run.pause() got resume={resume!r}", remedy=f"it is one of {', '.join(allowed)}")
    reason = reason.strip()
    await scope.call(_Pause(reason, resume), (reason, resume), {})
    scope.agent.check_going_on()


class _Pause(OwnStep[..., None]):
    def __init__(self, reason: str, resume: Resume):
        super().__init__(_wish, name="pause", retry=None, on_partial="restart")
        self._request = PauseRequested(reason=reason, by="the agent", resume=resume)

    async def perform(self, call: Any) -> Any:
        """The request and the record of this call are one group, so a crash can't separate them."""
        assert isinstance(call, OpenCall)
        context = call.scope.context
        context.journal.add(StepCompleted(**call.identity(), result=Raw(b"null")))
        context.stopping.pause(self._request)
        context.journal.flush()  # an earlier request for a pause counts, so nothing is flushed for this one
        context.pace.step_is_done(call.scope.agent.files)


def _wish(reason: str, resume: str) -> None:
    """What identifies a request."""


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
            return await _run_agent(session, scope, agent, begun, path, args, kwargs, codec)
    finally:
        context.agents.names.remove(path)


async def _run_agent(
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
        result = await _outcome_of_agent(child, args, kwargs)
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


async def _outcome_of_agent(child: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
