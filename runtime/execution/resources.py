"""What a run works with besides its data: resources, prompts, and what it refers to.

Resources open before the agent is called and are released after it, tier by tier; each outcome is recorded. A prompt is
a file `prompts/NAME.md` with placeholders, and a version that the run may be held to. A placeholder is `{{name}}`, so
the braces of JSON in a prompt have no meaning. A reference names something outside that the agent needs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial as bind
from typing import Any

from ...schemas import Problem
from ...workspace import journal
from ...workspace.base import AgentError, InvalidFile, SatchelError, UsageError, decode, place
from ...workspace.journal import Configured, PauseRequested
from ...workspace.lifecycle import Workspace
from ...workspace.state import prompts
from ..agent import (
    TIERS,
    HeldResource,
    Prompt,
    Resource,
    ResourceOutcome,
    Tier,
    awaited,
    describe,
    runs_on_loop,
    takes_run,
    unhindered,
)
from ..engine import AgentContext, Context, Session, check_outside_steps, current_call
from ..live import StopRequests, Suspended


class OpenResources:
    """The open resources of one run. They are released by tier, and within a tier the last opened first."""

    def __init__(self, workspace: Workspace, stopping: StopRequests, declared: Iterable[Resource]):
        self._workspace, self._stopping = workspace, stopping
        self._declared = tuple(declared)
        self._held: dict[str, HeldResource] = {}  # in the order in which they were opened
        self._names: set[str] = set()  # names of open resources and of those being opened
        self._is_released = False
        self.unreleased: list[str] = []  # errors of releases, in words

    def find(self, name: str) -> HeldResource | None:
        return self._held.get(name)

    def names(self) -> list[str]:
        return list(self._held)

    async def open(self, run: Any) -> None:
        """Open what the agent has declared and is not open yet, `process` first and `application` last. If one is not
        available, release the others, request a pause, and raise Suspended. After any exception nothing is left
        open."""
        missing = [declared for declared in self._declared if declared.name not in self._held]
        try:
            for declared in sorted(missing, key=lambda each: TIERS.index(each.tier), reverse=True):
                await self.add(declared, run)
        except BaseException:
            await unhindered(self._release_all())
            raise
        if missing:
            self._workspace.journal.flush()

    async def add(self, declared: Resource, run: Any) -> Any:
        """Open one more resource and return the object."""
        if self._is_released:
            raise UsageError(f"the resource {declared.name!r} was entered after the end of the run")
        if declared.name in self._names:
            raise UsageError(
                f"there is a resource {declared.name!r} already",
                remedy="give each its own name, or pass a function: Satchel calls it only if no resource has that name",
            )
        factory = declared.factory
        make = bind(factory, run) if takes_run(factory) else factory
        held = HeldResource(declared, make, on_loop=runs_on_loop(factory))
        self._names.add(declared.name)
        try:
            with self._stopping.drain.working(f"opening {declared.name}"):
                event = await held.open()
        except BaseException:
            self._names.discard(declared.name)
            raise
        self._workspace.journal.add(_record(held, "opened", event))
        if event.outcome == "ok":
            self._held[held.name] = held
            return held.object
        self._names.discard(declared.name)
        if held.is_open:
            await self._release(held)
        error = describe(event.error, self._workspace.store.url) if event.error else None
        reason = f"resource {held.name} is not available: {event.why}"
        self._stopping.pause(PauseRequested(reason=reason, by="satchel"), error)
        raise Suspended from event.error

    async def release(self) -> None:
        """Release all open resources, one after the other. Raises nothing: errors are recorded and listed in
        `unreleased`. A cancellation does not shorten it, because every release has its time limit."""
        self._is_released = True
        await unhindered(self._release_all())

    async def _release_all(self) -> None:
        held, self._held = list(self._held.values()), {}
        self._names.difference_update(each.name for each in held)
        for tier in TIERS:
            for each in reversed(held):
                if each.tier == tier:
                    await self._release(each)

    async def _release(self, held: HeldResource) -> None:
        event = await held.release()
        if event.outcome != "ok":
            self.unreleased.append(f"resource {held.name} was not released properly: {event.why}")
        with suppress(SatchelError):  # the journal may be what has failed
            self._workspace.journal.add(_record(held, "released", event))


class Resources:
    """The open resources as the agent sees them: `run.resources["db"]` is the object. The whole tree of agents shares
    them."""

    def __init__(self, agent: AgentContext, pool: OpenResources):
        self._agent, self._pool = agent, pool

    def __getitem__(self, name: str) -> Any:
        held = self._pool.find(name)
        if held is None and (rehearsal := self._agent.context.rehearsal) is not None:
            rehearsal.at_resource(self._agent.context.stopping, name)
        if held is None:
            there = ", ".join(self._pool.names())
            raise UsageError(
                f"there is no resource {name!r}",
                why=f"there are: {there}" if there else None,
                remedy="declare it with @agent(resources=[...]) at the run's own agent, or enter it",
            )
        return held.object

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._pool.find(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._pool.names())

    @awaited("run.resources.enter")
    async def enter(
        self,
        what: Any,
        *,
        name: str,
        tier: Tier = "application",
        check: Callable[[Any], Any] | None = None,
        timeout: float = 10.0,  # noqa: ASYNC109 - it is also the time limit of the check and the release
    ) -> Any:
        """Open one more resource and return the object. It stays open until the run stops, even if an item opened it.
        Every start enters it again.

        `what` is a context manager, an object with `aclose()` or `close()`, or a function that makes one, as in a
        `Resource`. If `what` is a function and a resource of that name is open, that one is returned; anything else
        under a used name is a UsageError. If the resource is not available, the run pauses. Not for use in a step,
        because a recorded step does not run.
        """
        check_outside_steps("run.resources.enter() was called")
        self._agent.check_going_on()
        is_function = callable(what) and (isinstance(what, type) or not _is_manager(what))
        if is_function and name in self:
            return self[name]
        if (rehearsal := self._agent.context.rehearsal) is not None:
            rehearsal.at_resource(self._agent.context.stopping, name)
        factory = what if is_function else (lambda: what)
        return await self._pool.add(Resource(name, factory, tier, check, timeout), self._agent.run)


def _is_manager(what: Any) -> bool:
    return hasattr(type(what), "__enter__") or hasattr(type(what), "__aenter__")


def _record(held: HeldResource, event: Any, came: ResourceOutcome) -> journal.ResourceChanged:
    return journal.ResourceChanged(
        name=held.name, tier=held.tier, event=event, outcome=came.outcome, why=came.why, ms=came.ms
    )


_PLACE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def read_prompt(session: Session, loop: asyncio.AbstractEventLoop, name: str, values: dict[str, Any]) -> Prompt:
    """The prompt `name` with `values` in its placeholders, in the version that the run is held to, else as the file is
    now. The text is kept when this returns. May be called from any thread; `loop` is the one of the run.

    UsageError if there is no such prompt, AgentError if it has a secret, InvalidFile if a placeholder has no value.
    """
    workspace, path = session.context.workspace, prompts.path_of(name)
    pinned = prompts.pinned(workspace.moment.config)
    version = (pinned or {}).get(name, "")
    if version:
        text = prompts.prompt_text(session.store, name, version)
    else:
        shelf = prompts.Shelf(session.store, workspace.definition.prompts_folder)
        try:
            found = shelf.read(name)
        except FileNotFoundError:
            raise shelf.missing(name) from None
        text, path = decode(found.data, found.path), found.path
        version = prompts.keep(session.store, name, found.data, workspace.redactor)
    if missing := [match for match in _PLACE.finditer(text) if match[1] not in values]:
        raise InvalidFile(
            path,
            [
                Problem(place(text, each.start()), each[0], "a value for it", f"Call run.prompt(..., {each[1]}=...)")
                for each in missing
            ],
        )
    if pinned is not None and name not in pinned:
        try:
            is_here = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_here = False
        if is_here:
            _pin(workspace, name, version)
        else:  # of a step: what it returns is recorded later
            loop.call_soon_threadsafe(_pin, workspace, name, version)
    if (call := current_call.get()) is not None:
        call.prompts[name] = version
    return Prompt(_PLACE.sub(lambda match: str(values[match[1]]), text), name, version)


def _pin(workspace: Workspace, name: str, version: str) -> None:
    config = workspace.moment.config
    known = prompts.pinned(config)
    if known is not None and name not in known:
        workspace.journal.add(Configured(config={**config, prompts.PINNED: {**known, name: version}}))


def refer(context: Context, reference: str) -> None:
    """Record durably that the agent needs what is at `reference`. What it holds is recorded as soon as that is known.
    AgentError for a secret in it, which no later start could follow."""
    workspace = context.workspace
    for _, rule in workspace.redactor.found_in(reference):
        raise AgentError(
            "a reference has a secret", why=rule, remedy="let the environment have it, as fsspec's options"
        )
    if reference not in workspace.definition.references:
        workspace.journal.flush()  # what it works with may be about to be recorded
        config = workspace.moment.config
        known = config.get("references", [])
        if reference not in known:
            workspace.journal.add(Configured(config={**config, "references": [*known, reference]}))
            workspace.journal.flush()
    context.on_refer(reference)
