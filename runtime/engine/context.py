"""What all agents of a run share, and what the scopes of one agent share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import get_ident
from typing import Any, Protocol

from msgspec import Struct, field

from ...workspace.journal.records import Line
from ...workspace.lifecycle import Workspace
from ...workspace.people.inbox import Arrivals
from ...workspace.secrets import Redactor
from ...workspace.views import Files
from ..limits import Announcer, Limits
from . import log, observing
from .doubts import Doubts
from .forgotten import Looks
from .listening import Listening
from .only import Only
from .outputs import Outputs
from .pace import Pace
from .publishing import ResultSchemas
from .running import Running
from .stopping import Stopped, Stopping, Suspended
from .watch import Tap, Told, Watch

_THREADS = 32


class Abandoned(Stopped):
    """The agent's caller no longer waits for it."""


class Tally(Struct):
    """What the outcome of this process reports and the journal does not."""

    answered: int = 0  # calls answered from the record
    recovered: int = 0  # recovered characters of streamed answers
    noticed: list[str] = field(default_factory=list)  # people's edits since it was opened, in words


class Agents:
    """The running agents of the tree."""

    def __init__(self) -> None:
        self.running: dict[str, AgentContext] = {}  # by path
        self.names: set[str] = set()  # their paths, and those of agents that are about to begin
        self.parallel = 0  # the agents of which several scopes may run at once
        self.calls = 0  # the running scopes of all agents that may commit

    def begin(self, root: AgentContext) -> None:
        """The root is entered, and no earlier agent runs."""
        self.running, self.parallel = {"": root}, 0
        self.names.clear()

    def stop_abandoned(self) -> None:
        """A caller has failed: stop its agents that wait for something other than Satchel."""
        for agent in list(self.running.values()):
            agent.stop_if_abandoned()

    async def stop_all(self) -> None:
        """The root has ended: no sub-agent outlives it."""
        tasks = [agent.task for agent in self.running.values() if agent.task is not None]
        for task in tasks:
            task.cancel()
        while any(not task.done() for task in tasks):
            with suppress(asyncio.CancelledError):  # the run is being left already
                await asyncio.wait(tasks)


class Context:
    """What all agents of a run share, each part with its own purpose. For one opening; used from one event loop."""

    def __init__(
        self,
        workspace: Workspace,
        stopping: Stopping,
        doubts: Doubts,
        announcer: Announcer,
        watch: Watch | None,
        tap: Tap | None = None,
        only: Only | None = None,
        rehearsal: Any = None,
    ):
        self.workspace, self.stopping, self.doubts = workspace, stopping, doubts
        self.store, self.moment = workspace.store, workspace.moment
        self.journal, self.projector = workspace.journal, workspace.projector
        self._told = Told(watch, workspace) if watch else None
        self.watch: Watch | None = self._told
        self.tap, self.only = tap, only
        self.rehearsal = rehearsal  # a `Rehearsal` (rehearsal.py, which needs the scopes and so this module)
        self.observer = observing.observer_here()
        workspace.journal.on_durable = self._durable
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        log.started(workspace.moment, workspace.store.url)
        self.announcer = announcer
        self.limits = Limits(workspace, stopping.pause, announcer)
        self.pace = Pace(workspace, stopping.fail)
        self.running = Running(workspace)
        self.outputs = Outputs(workspace)
        self.schemas = ResultSchemas(workspace)
        self.arrivals = Arrivals(self.store, self.moment)
        self.listening = Listening(self.arrivals)
        self.threads = ThreadPoolExecutor(_THREADS, "satchel-step")
        self.agents, self.tally, self.looks = Agents(), Tally(), Looks()
        self.make_run: Callable[[Any], Any]  # makes the `Run` for an agent (run/run.py)
        self.on_refer: Callable[[str], None] = lambda reference: None  # called with what `run.refer` has named
        self.at_boundary: Callable[[], Any] = lambda: None  # called when a scope has ended

    @property
    def redactor(self) -> Redactor:
        """As workspace.yaml has it now."""
        return self.workspace.redactor

    def notice(self, kind: str, text: str) -> None:
        """Tell of what people have done to the files: now the watch of the run, later the caller of the run."""
        text = self.redactor.text(text)
        self.tally.noticed.append(text)
        if self.watch:
            self.watch.noticed(kind, text)

    def _durable(self, lines: Sequence[Line]) -> None:
        """On the loop, whichever thread has made them durable: who is told need not know of threads."""
        if get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._durable, lines)
            return
        log.recorded(self.moment.run_id, lines)
        if self._told:
            self._told.durable(lines)
        if self.tap:
            self.tap.recorded(lines)

    def begin(self, root: AgentContext, main: asyncio.Task[Any]) -> None:
        """The agent is entered in the task `main`; again after an edit that its running work must see, and for
        `on_cancel`."""
        self.agents.begin(root)
        self.looks.begin()
        self.doubts.begin()
        self.stopping.begin(main)


class Caller(Protocol):
    """The scope that an agent was spawned in."""

    abandoned: bool
    agent: AgentContext


class AgentContext:
    """What the scopes of one agent of the tree share."""

    def __init__(
        self,
        context: Context,
        path: str,
        caller: Caller | None,
        *,
        pipelined: bool = False,
        keeps_unknown: bool = False,
    ):
        self.context, self.path, self.caller, self.pipelined = context, path, caller, pipelined
        self.keeps_unknown = keeps_unknown  # keys on record that the types of its code do not have
        self.recorded = context.moment.agents[path]
        self.run: Any = None  # the `Run` of this agent
        self.task: asyncio.Task[Any] | None = None  # a sub-agent's own
        self.is_closing = False
        self.abandoned = False  # no caller waits for it any more
        self._depth = path.count("/") + 2 if path else 1
        self._under_way = 0
        self._is_cancelled = False

    @property
    def folder(self) -> str:
        return self.recorded.folder

    @property
    def files(self) -> Files:
        return self.context.workspace.files[self.path]

    def refresh(self) -> None:
        """The record has changed: take state and plan from it. Only between two scopes."""

    @property
    def is_alone(self) -> bool:
        """Whether only one scope of this agent runs, and those agents that wait for it."""
        return len(self.context.agents.running) == self._depth and not self.context.agents.parallel

    def check_going_on(self) -> None:
        """Like that of `Stopping`. In addition, an agent whose caller has failed stops at its next call."""
        self.context.stopping.check_going_on()
        if self.caller is not None and self.is_abandoned and not self.context.stopping.drain.is_held_here:
            raise Abandoned

    def stopped(self) -> Stopped:
        """The exception that unwinds a caller that has caught an earlier stop."""
        return Suspended() if self.context.stopping.suspension else Abandoned()

    def check_may_commit(self) -> None:
        """Like that of `Stopping`. In addition, an agent whose caller has failed commits nothing."""
        self.context.stopping.check_may_commit()
        if self.caller is not None and self.is_abandoned:
            self.check_going_on()

    @property
    def is_abandoned(self) -> bool:
        return self.abandoned or (self.caller is not None and (self.caller.abandoned or self.caller.agent.is_abandoned))

    def begin_work(self) -> None:
        """From now to its end, this work goes on even if the agent is abandoned."""
        self._under_way += 1

    def end_work(self) -> None:
        self._under_way -= 1
        if not self._under_way and self.caller is not None:
            self.stop_if_abandoned()

    def abandon(self) -> None:
        """Running work of this agent and its sub-agents finishes; nothing more begins."""
        self.abandoned = True
        self.context.agents.stop_abandoned()

    def stop_if_abandoned(self) -> None:
        """It would stop at its next call, but it may wait for something that never comes."""
        if self.task and self.is_abandoned and not self._under_way and not self._is_cancelled:
            self._is_cancelled = True
            self.task.cancel()
