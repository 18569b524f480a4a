"""What all agents of a run share, and what the scopes of one agent share. Their records become durable at a pace that
costs little, and the schemas of their data and of the results of their steps are published for editors and all readers.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from msgspec import Struct, field

from ... import schemas
from ...workspace.base import SatchelError, UsageError
from ...workspace.formats import jsontext
from ...workspace.inbound import Arrivals
from ...workspace.journal import Line
from ...workspace.lifecycle import Workspace
from ...workspace.secrets import Redactor
from ...workspace.state import AgentMoment
from ...workspace.views import Files, publish, schema_files
from ..agent import Agent, Closed, Codec, OwnStep, Step
from ..live import (
    AgentStopped,
    Announcer,
    AnswerSource,
    Doubts,
    FolderWatch,
    Limits,
    LoopWatch,
    Outputs,
    PendingLooks,
    ReplayTarget,
    Running,
    StopRequests,
    Suspended,
    Tap,
    Watch,
    log_records,
    log_start,
    observer_here,
)

if TYPE_CHECKING:
    from ..keeper import KeeperLink

_LOOK = 0.1
"""Seconds between two looks."""

_SHARE = 20
"""A look takes at most one part in so many of the time."""


class Listening:
    """Looks into the inbox as often as costs little. For one event loop."""

    def __init__(self, arrivals: Arrivals):
        """`arrivals` are those of `run.inbox`, so that `run.inbox.take` can take at once what was found here."""
        self._arrivals, self._due = arrivals, 0.0

    def hears(self) -> bool:
        """Whether a message waits. Without a look, so no, if the last one was a moment ago and found none."""
        began = time.monotonic()
        if began < self._due:
            return False
        found = self._arrivals.has_message()
        now = time.monotonic()
        self._due = 0.0 if found else now + max(_LOOK, _SHARE * (now - began))
        return found


_ELSEWHERE = re.compile(r'("\$ref": ")(?!data\.json)([a-z]+\.json)')
"""A reference from one schema to another, except to the agent's own data."""


def publish_schemas(workspace: Workspace, agent: Agent, recorded: AgentMoment) -> None:
    """Write the schema of the agent's data, and of the state.json that contains it, where an editor finds them. Data of
    an earlier version keep their schema until they are migrated. A default in it may be a secret."""
    store = workspace.store
    if recorded.has_data and recorded.data_version != agent.version:
        return
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "data.json", **agent.schema_of_data()}
    schema = workspace.redactor.value(schema)
    publish(store, f"{recorded.folder}data", jsontext.dump(schema))
    if recorded.path and not store.abilities.remote:  # see views/schema_files.py
        below = _of_sub_agent(schemas.schema("state"), recorded.folder)
        publish(store, f"{recorded.folder}state", jsontext.dump(below))


class ResultSchemas:
    """Of one run. Each is written at the first record of a result of its type, once in a process."""

    def __init__(self, workspace: Workspace):
        self._workspace = workspace
        self._names = WeakKeyDictionary[Codec, str](), WeakKeyDictionary[Codec, str]()
        self._written = set[str]()

    def name(self, step: Step, *, keeps_unknown: bool) -> str:
        """The name for the record. Empty if the result has no type, or a type without a schema, and for methods of the
        run. `keeps_unknown`: the agent keeps keys that the type does not have."""
        codec, names = step.shape.codec, self._names[keeps_unknown]
        known = names.get(codec)
        if known is None:
            known = names[codec] = self._publish(step, "no" if keeps_unknown else "classes")
        return known

    def forget(self, name: str) -> None:
        """The code gives results another type than the record of this schema says, so a person must be able to write
        one: without the schema only the code checks it. The next record of a result of the old type writes it again."""
        if name:
            self._written.discard(name)
            with suppress(FileNotFoundError):
                self._workspace.store.remove(schema_files.result_path(name))

    def _publish(self, step: Step, closed: Closed) -> str:
        if isinstance(step, OwnStep) and not step.is_effect:
            return ""
        try:
            schema = step.shape.codec.schema(closed)
        except UsageError:
            return ""
        if not schema:
            return ""
        made = schema_files.result_schema(self._workspace.redactor.value(schema))
        if made.name not in self._written:
            self._written.add(made.name)
            store, path = self._workspace.store, schema_files.result_path(made.name)

            def write() -> None:
                if store.version(path) is None:
                    store.replace(path, made.data, sync="no")  # torn, it is no schema, and checks nothing

            self._workspace.behind.do(path, write)
        return made.name


def _of_sub_agent(schema: dict[str, Any], folder: str) -> dict[str, Any]:
    """The same some folders deeper: its references, except to the data, are relative to the top."""
    up = "../" * folder.count("/")
    text = _ELSEWHERE.sub(rf"\g<1>{up}\g<2>", json.dumps(schema))
    found: dict[str, Any] = json.loads(text)
    return found


_THREADS = 32


ALONE_AFTER = 0.05
"""Seconds after which a commit is written without other records."""

_FLUSH_SHARE = 20
_LONGEST_UNFLUSHED = 0.1
_UNFLUSHED_BYTES = 1 << 20


class Pace:
    """When records become durable that no code waits for, and when the readable files show them. For one run, on its
    loop. `failed` is called with errors that no code waits for."""

    def __init__(self, workspace: Workspace, failed: Callable[[SatchelError], None]):
        self._workspace, self._failed = workspace, failed
        self._journal, self._projector = workspace.journal, workspace.projector
        self._alone_at = 0.0  # when the oldest waiting record is written alone, by the loop's clock; 0: none waits
        self._is_timed = False
        self._flush_due = 0.0
        self._flush_is_planned = False
        self._is_over = False

    def begin(self) -> None:
        """Give the projector the loop's timer for later writes, and let it write when the records that it shows are
        durable."""
        loop = asyncio.get_running_loop()

        def wake(delay: float) -> None:
            loop.call_later(delay, self._catch_up)

        self._is_over = False
        self._projector.wake = wake
        self._journal.on_taken = self._taken
        loop.call_soon(self._catch_up)

    def end(self) -> None:
        """The run is about to stop, and another thread may write that. Timers that are set do nothing any more."""
        self._projector.wake = self._journal.on_taken = None
        self._is_over = True

    def flush_later(self) -> None:
        """Write the new records with the next group, or alone in a moment.

        An agent that blocks the loop also blocks timers. So records that have waited that long are written at once.
        """
        if not self._journal.has_waiting:
            return
        loop = asyncio.get_running_loop()
        if self._alone_at:
            if loop.time() >= self._alone_at:
                self._journal.flush_soon()
            return
        self._alone_at = loop.time() + ALONE_AFTER
        if not self._is_timed:
            self._is_timed = True
            loop.call_at(self._alone_at, self._go_alone, loop)

    def _go_alone(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_timed = False
        if self._alone_at > loop.time():  # the timer's record was written with others, and this one has come since
            self._is_timed = True
            loop.call_at(self._alone_at, self._go_alone, loop)
        elif self._alone_at:
            self._quietly(self._journal.flush_soon)

    def _taken(self) -> None:
        """All new records are durable or being written."""
        self._alone_at = 0.0
        self._quietly(self._projector.look)

    def _catch_up(self) -> None:
        self._quietly(self.flush_later)  # records that wait, such as the beginning of an item, must be shown
        self._quietly(self._projector.catch_up)

    def _quietly(self, act: Callable[[], None]) -> None:
        if self._is_over:
            return
        try:
            act()
        except SatchelError as error:
            self._failed(error)

    def flush_soon(self, files: Files) -> None:
        """Make the new records durable within the next moments, with as few syncs as take a twentieth of the time.

        Every step calls this, not only a timer: steps that never wait would not let a timer run.
        """
        now = time.monotonic()
        if now >= self._flush_due or self._journal.waiting_bytes >= _UNFLUSHED_BYTES:
            self._journal.flush_soon()
            ended = time.monotonic()
            is_remote = self._workspace.store.abilities.remote
            share = _LONGEST_UNFLUSHED if is_remote else _FLUSH_SHARE * (ended - now)
            self._flush_due = ended + min(share, _LONGEST_UNFLUSHED)
            self.step_is_done(files)
        elif not self._flush_is_planned:
            self._flush_is_planned = True
            asyncio.get_running_loop().call_later(self._flush_due - now, self._flush_as_planned, files)

    def _flush_as_planned(self, files: Files) -> None:
        self._flush_is_planned = False
        self._quietly(self._journal.flush_soon)
        self._flush_due = time.monotonic() + _LONGEST_UNFLUSHED
        self._quietly(lambda: self.step_is_done(files))

    def step_is_done(self, files: Files) -> None:
        """Show its result."""
        self._projector.mark(files.steps)
        self._workspace.checkpoint_if_due()


class Abandoned(AgentStopped):
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
        stopping: StopRequests,
        doubts: Doubts,
        announcer: Announcer,
        watch: Watch | None,
        tap: Tap | None = None,
        only: ReplayTarget | None = None,
        rehearsal: Any = None,
    ):
        self.workspace, self.stopping, self.doubts = workspace, stopping, doubts
        self.store, self.moment = workspace.store, workspace.moment
        self.journal, self.projector = workspace.journal, workspace.projector
        self._told = LoopWatch(watch, workspace) if watch else None
        self.watch: Watch | None = self._told
        self.tap, self.only = tap, only
        self.rehearsal = rehearsal  # a `Rehearsal` (scope.py, which needs this module)
        self.observer = observer_here()
        workspace.journal.on_durable = self._durable
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        log_start(workspace.moment, workspace.store.url)
        self.announcer = announcer
        self.limits = Limits(workspace, stopping.pause, announcer.tell, announcer.say_problems)
        self.pace = Pace(workspace, stopping.fail)
        self.running = Running(workspace)
        self.outputs = Outputs(workspace)
        self.schemas = ResultSchemas(workspace)
        self.arrivals = Arrivals(self.store, self.moment)
        self.listening = Listening(self.arrivals)
        self.threads = ThreadPoolExecutor(_THREADS, "satchel-step")
        self.agents, self.tally, self.looks = Agents(), Tally(), PendingLooks()
        self.answers = AnswerSource(workspace, self.tally.noticed)
        self.folder = FolderWatch(self.store)
        self.folder.sources.append(self.answers.look)
        self.make_run: Callable[[Any], Any]  # makes the `Run` for an agent (execution/run_object.py)
        self.on_refer: Callable[[str], None] = lambda reference: None  # called with what `run.refer` has named
        self.at_boundary: Callable[[], Any] = lambda: None  # called when a scope has ended
        self.keeper: KeeperLink | None = None  # holds the model calls of this run

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
        log_records(self.moment.run_id, lines)
        if self._told:
            self._told.durable(lines)
        if self.tap:
            self.tap.recorded(lines)

    def on_loop(self, work: Callable[[], None]) -> None:
        """Call `work` on the loop, from any thread, and wait until it has returned. What it raises is raised here."""
        if get_ident() == self._thread:
            work()
            return
        done: Future[None] = Future()

        def call() -> None:
            try:
                work()
                done.set_result(None)
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(call)
        done.result()

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
        """Like that of `StopRequests`. In addition, an agent whose caller has failed stops at its next call."""
        self.context.stopping.check_going_on()
        if self.caller is not None and self.is_abandoned and not self.context.stopping.drain.is_held_here:
            raise Abandoned

    def stopped(self) -> AgentStopped:
        """The exception that unwinds a caller that has caught an earlier stop."""
        return Suspended() if self.context.stopping.suspension else Abandoned()

    def check_may_commit(self) -> None:
        """Like that of `StopRequests`. In addition, an agent whose caller has failed commits nothing."""
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
