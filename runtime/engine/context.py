"""What all agents of a run share, and what the scopes of one agent share. The schemas of their data and of the results
of their steps are published here, for editors and all readers.
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
from ...workspace.base import UsageError
from ...workspace.formats import jsontext
from ...workspace.inbound import Arrivals
from ...workspace.journal import Line
from ...workspace.lifecycle import Workspace
from ...workspace.secrets import Redactor
from ...workspace.state import AgentMoment
from ...workspace.views import Files, publish, schema_files
from ..agent import Agent
from ..limits import Announcer, Limits
from ..live import (
    AgentStopped,
    AnswerSource,
    Doubts,
    FolderWatch,
    LoopWatch,
    Outputs,
    Pace,
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
from ..steps import Closed, Codec, OwnStep, Step

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
        self.rehearsal = rehearsal  # a `Rehearsal` (rehearsal.py, which needs the scopes and so this module)
        self.observer = observer_here()
        workspace.journal.on_durable = self._durable
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        log_start(workspace.moment, workspace.store.url)
        self.announcer = announcer
        self.limits = Limits(workspace, stopping.pause, announcer)
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
        self.make_run: Callable[[Any], Any]  # makes the `Run` for an agent (run/run.py)
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
