"""What all calls of one run share: the opened workspace, the counts, and whether the run goes on.

`Context` is the whole tree's, `AgentContext` one agent's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from msgspec.structs import replace

from ...workspace.base import SIGNAL, SatchelError
from ...workspace.inspect import Report
from ...workspace.journal.records import Doubt, Failure, Forced, Key, PauseRequested
from ...workspace.lifecycle import Workspace
from ...workspace.people.approvals import find
from ...workspace.people.edits import CheckData
from ...workspace.people.inbox import Offered
from ...workspace.views import Files
from ..agent import Code
from ..limits import Announcer, Limits
from ..steps import current_scope
from .drain import Drain
from .ordered_watch import Told
from .outputs import Outputs
from .pace import Pace
from .reverify import Rechecks
from .signals import Interruption

_WEIGHT = {"edited": 0, "sleeping": 1, "waiting": 2, "paused": 3}

_THREADS = 32
_LOOK_AGAIN = 0.05


class Stopped(asyncio.CancelledError):
    """Unwinds an agent. A cancellation, so that an agent's `except Exception` and what is beside it in a TaskGroup let
    it by. Where one is made, neither the call nor the scope at work come to a result, even if it is caught."""

    def __init__(self) -> None:
        super().__init__()
        if (scope := current_scope.get()) is not None:
            scope.stop()


class Suspended(Stopped):
    """The run can't go on now."""


class Abandoned(Stopped):
    """Nothing waits for the agent any more."""


@dataclass(frozen=True, slots=True)
class Suspension:
    """Why a run stops before its end, and how it is left. For what was `edited` it is entered again at once."""

    status: Literal["waiting", "paused", "sleeping", "edited"]
    reason: str
    until: str = ""  # of a sleeping one: UTC, ISO 8601
    error: Failure | None = None


class Watch(Protocol):
    """Who is told how a run goes, for a person to see. Called on the loop; must be quick and must not raise.

    `agent` is the path of a sub-agent, empty for the root.
    """

    def opened(self, report: Report) -> None: ...
    def agent_begun(self, agent: str) -> None: ...
    def agent_ended(self, agent: str) -> None: ...
    def item_begun(self, agent: str, text: str, finished: int, of: int) -> None: ...
    def item_ended(self, agent: str, text: str, finished: int, of: int) -> None: ...
    def step_begun(self, agent: str, name: str) -> None: ...
    def streamed(self, agent: str, name: str, characters: int) -> None: ...
    def noticed(self, kind: str, text: str) -> None: ...


class Context:
    """Of one run, all its agents included. Used from one event loop."""

    def __init__(
        self, workspace: Workspace, interruption: Interruption, watch: Watch | None, announcer: Announcer | None = None
    ):
        self.workspace, self.interruption = workspace, interruption
        self.watch: Watch | None = Told(watch, workspace.journal) if watch else None
        self.announcer = announcer or Announcer(workspace, watch)
        self.limits = Limits(workspace, self.pause, self.announcer)
        self.store, self.moment = workspace.store, workspace.moment
        self.journal, self.projector = workspace.journal, workspace.projector
        self.threads = ThreadPoolExecutor(_THREADS, "satchel-step")
        self.drain = Drain()
        self.agents: dict[str, AgentContext] = {}  # those at work
        self.names: set[str] = set()  # theirs, and those of the ones that are about to begin
        self.left_in_doubt: list[str] = []
        self.rechecks = Rechecks(self.moment)
        self.cut_off_by = "a crash"  # what is told of a call that had begun and not ended
        self.code: Code | None = None  # of the agent, if that was looked at before
        self.make_run: Callable[[Any], Any]  # makes the face of a run that an agent sees (run/run.py)
        self.offered: Offered = {}  # of the inbox, to the agent
        self.has_opened_inbox = False  # the agent has asked for tasks, those of its schedule included
        self.under_way = 0  # calls that may commit
        self.answered = 0  # calls answered from the record
        self.recovered = 0  # characters of streamed answers that were not paid for again
        self.suspension: Suspension | None = None
        self._has_asked = False  # a person is to say whether an effect has happened
        self._asks: set[str] = set()  # the doubts that the agent has come to since it was entered
        self.noticed: list[str] = []  # what people have done to the files since it was opened, in words
        self.check_data: CheckData | None = None  # asks the agent's own state type
        self.definition_changed: Callable[[], Any] = lambda: None  # called when workspace.yaml says something else
        self.at_boundary: Callable[[], Any] = lambda: None  # called when a scope has ended
        self.on_pause: Callable[[], Any] | None = None  # called once a pause was asked for
        self.failed: SatchelError | None = None  # what went wrong where nobody was waiting for it
        self.pace = Pace(workspace, self._fail)
        self.outputs = Outputs(workspace)

    def _fail(self, error: SatchelError) -> None:
        self.failed = self.failed or error

    def begin(self, main: asyncio.Task[Any]) -> None:
        """The agent is entered, in the task `main`; again, if a pause in this process is over."""
        self.suspension, self._has_asked = None, False
        self._asks.clear()
        self.names.clear()
        self.left_in_doubt = [  # sub-agents with effects of which an earlier process has not learnt how they ended
            path for path, agent in self.moment.agents.items()
            if path and any(scope.started for scope in agent.scopes.values())
        ]  # fmt: skip
        self.drain.watch(main)

    def stop_abandoned(self) -> None:
        """Somebody's caller has failed: let those who wait for nothing of ours not wait for ever."""
        for agent in list(self.agents.values()):
            agent.stop_if_abandoned()

    async def stop_all(self) -> None:
        """The root has come to its end: no sub-agent outlives it."""
        tasks = [agent.task for agent in self.agents.values() if agent.task is not None]
        for task in tasks:
            task.cancel()
        while any(not task.done() for task in tasks):
            with suppress(asyncio.CancelledError):  # the run is being left already
                await asyncio.wait(tasks)

    def check_going_on(self) -> None:
        """Every call is a place to stop: when a person is needed, when a signal came, when the disk failed."""
        if self.failed:
            raise self.failed
        self.journal.check()
        if self.interruption.count:
            self.obey_signals()
        if self.suspension and not self.drain.is_held_here:
            self.drain.told()
            raise Suspended

    def check_may_commit(self) -> None:
        """A scope whose function has come to its end by itself is committed although the run is to pause; one that was
        told to stop is not, whatever it has made of that, nor is one that an edit may be about. In a part that must not
        be interrupted only the scope's own stop counts: it is in doubt, or asks."""
        if self.failed:
            raise self.failed
        if self.suspension is None:
            return
        is_whole = not (self.drain.has_cancelled or (scope := current_scope.get()) is None or scope.was_stopped)
        goes_on = self.suspension.status == "paused" and not self._has_asked
        if not (is_whole and (goes_on or self.drain.is_held_here)):
            self.drain.told()
            raise Suspended

    def obey_signals(self) -> None:
        """What the signals that have come so far ask for. On the loop: nothing may be recorded in a handler."""
        interruption, drain = self.interruption, self.drain
        if interruption.count and not (self.suspension and self.suspension.status == "paused"):
            self.pause(PauseRequested(reason=SIGNAL, by=interruption.name))
        if interruption.count > 1 and not drain.forced:
            self.force()

    def pause(self, request: PauseRequested, error: Failure | None = None) -> None:
        """The run is to stop at the next safe point. The wish is durable when this returns; the first one counts, but
        that a run is to be cancelled counts more."""
        known = self.moment.pause
        if known is None or (request.mode == "cancel" != known.mode):
            try:
                self.journal.add(request)
                self.journal.flush()
            except SatchelError as failure:
                self.failed = failure
        self.suspend(Suspension("paused", request.reason, error=error))
        if self.on_pause:
            self.on_pause()

    def force(self) -> None:
        """Do not wait any longer for what is under way."""
        began = datetime.fromisoformat(self.moment.pause.requested_at) if self.moment.pause else datetime.now(UTC)
        waited = (datetime.now(UTC) - began).total_seconds()
        self.journal.add(Forced(under_way=self.drain.force(), waited=round(max(0.0, waited), 3)))

    async def check_has_it(self) -> None:
        """Return when nobody else can have taken the workspace. LeaseHeld if somebody has: then no effect begins."""
        heartbeat = self.workspace.owned.heartbeat
        if heartbeat is None:
            return
        while not heartbeat.is_in_time:
            heartbeat.check()
            self.check_going_on()
            await asyncio.sleep(_LOOK_AGAIN)
        heartbeat.check()

    def suspend(self, suspension: Suspension) -> None:
        """From now on every call unwinds. Of several reasons the weightiest is kept, and of two sleeps the shorter."""
        known = self.suspension
        if known is None or _WEIGHT[suspension.status] > _WEIGHT[known.status] or (
            suspension.status == known.status == "sleeping" and suspension.until < known.until
        ):  # fmt: skip
            self.suspension = suspension
        self.drain.want()

    def ask(
        self, identity: dict[str, Any], why: Literal["unknown_outcome", "unclaimed", "unreached"],
        cause: str = "", others: tuple[Key, ...] = (), needs_person: bool = False,
    ) -> None:  # fmt: skip
        """Put a question about an effect on record, unless it is there already. From now on every call unwinds: a
        person is needed."""
        doubt = Doubt(**identity, id="", why=why, cause=cause, others=others, needs_person=needs_person)
        self._has_asked = True
        known = next((id for id, asked in self.moment.doubts.items() if self._is_same_question(doubt, asked)), None)
        if known is None:
            known = self.workspace.desk.free_id("d")
            self.journal.add(replace(doubt, id=known))
            self.journal.flush()
            self.put_question(known)
        self._asks.add(known)
        self.suspend(Suspension("waiting", "a person is asked"))

    def _is_same_question(self, doubt: Doubt, asked: Doubt) -> bool:
        """Of the unclaimed calls of one effect one at a time is asked about: the answer may settle the others, too. A
        question that this attempt does not ask is over."""
        if (doubt.agent, doubt.scope, doubt.step) != (asked.agent, asked.scope, asked.step):
            return False
        if doubt.why == asked.why == "unclaimed":
            return asked.id in self._asks or (doubt.key, doubt.others) == (asked.key, asked.others)
        return doubt.key == asked.key

    def put_question(self, id: str) -> None:
        """Let people see a question that is on record."""
        question = find(self.moment, id)
        assert question is not None
        self.workspace.desk.put(question)
        for files in self.workspace.files.values():
            self.projector.want(files.state)


class Caller(Protocol):
    """The scope that an agent was spawned in."""

    abandoned: bool
    agent: AgentContext


class AgentContext:
    """What the scopes of one agent of the tree share."""

    def __init__(self, context: Context, path: str, caller: Caller | None, *, pipelined: bool = False):
        self.context, self.path, self.caller, self.pipelined = context, path, caller, pipelined
        self.recorded = context.moment.agents[path]
        self.run: Any = None  # the face of the run that this agent sees
        self.task: asyncio.Task[Any] | None = None  # a sub-agent's own
        self.is_closing = False
        self.abandoned = False  # nobody waits for it any more
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
        """The record has changed under it: state and plan are to be those of the record. Only between two scopes."""

    @property
    def is_alone(self) -> bool:
        """Whether no agent is at work besides this one and those that wait for it."""
        return len(self.context.agents) == self._depth

    def check_going_on(self) -> None:
        """As the context's; and an agent whose caller has failed stops at its next call."""
        self.context.check_going_on()
        if self.caller is not None and self.is_abandoned and not self.context.drain.is_held_here:
            raise Abandoned

    def stopped(self) -> Stopped:
        """What unwinds a caller that has made something of its own of having been stopped."""
        return Suspended() if self.context.suspension else Abandoned()

    def check_may_commit(self) -> None:
        """As the context's, and an agent whose caller has failed commits nothing any more."""
        self.context.check_may_commit()
        if self.caller is not None and self.is_abandoned:
            self.check_going_on()

    @property
    def is_abandoned(self) -> bool:
        return self.abandoned or (
            self.caller is not None and (self.caller.abandoned or self.caller.agent.is_abandoned)
        )  # fmt: skip

    @contextmanager
    def busy(self) -> Iterator[None]:
        """The body comes to its end even if the agent is abandoned."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way and self.caller is not None:
                self.stop_if_abandoned()

    def abandon(self) -> None:
        """What is under way in it, and in those it has spawned, comes to its end; nothing more is begun."""
        self.abandoned = True
        self.context.stop_abandoned()

    def stop_if_abandoned(self) -> None:
        """At its next call it would stop; but it may be waiting for something that never comes."""
        if self.task and self.is_abandoned and not self._under_way and not self._is_cancelled:
            self._is_cancelled = True
            self.task.cancel()
