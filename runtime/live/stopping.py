"""Whether a run may continue, why it stops early, and how it comes from the request to stop to the safe point.

This module knows what is running: the functions of steps and effects, uninterrupted blocks, and the writes of their
records. When a stop is requested and none of these is left, the run is between two steps. Then whatever the agent waits
for is cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NoReturn, Self

from msgspec import Struct, field

from ...workspace.base import SIGNAL, SatchelError, time_text
from ...workspace.journal import Failure, Forced, Key, PauseRequested
from ...workspace.lifecycle import FIRST_LOOK, Follower, Workspace
from ..agent import A_DAY, current_scope
from .supervisor_link import Interruption

_PATIENCE = 0.01
"""Seconds for an agent to continue by itself: from its last step to its commit, or to a call that stops it."""

_UNWINDING = 5.0
"""Seconds for a stopped agent to clean up."""


class _Work(Struct, eq=False):
    """A part of the agent's code that finishes before the run stops."""

    what: object  # its text is for people
    task: asyncio.Task[Any] | None
    drain: Drain
    around: _Work | None = None
    ended: bool = False

    def __enter__(self) -> Self:
        self.drain.at_work[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True
        self.drain.has_ended(self)


_held_here: ContextVar[_Work | None] = ContextVar("held_here", default=None)
"""The innermost uninterrupted block. Tasks made in one inherit it and may outlive it."""


class Drain:
    """For one run. Used from its loop."""

    def __init__(self) -> None:
        self.forced = False  # running work is not waited for any more
        self.has_cancelled = False  # the agent was cancelled where it waited
        self._wanted = False
        self._main: asyncio.Task[Any] | None = None
        self._told = 0.0  # when the agent itself was stopped by a call
        self.has_told = False  # some code was stopped by a call, so the agent must unwind
        self.at_work: dict[_Work, None] = {}  # oldest first
        self._is_planned = False

    @property
    def is_held_here(self) -> bool:
        """Whether the caller is in an uninterrupted block."""
        work = _held_here.get()
        while work is not None and work.ended:
            work = work.around
        return work is not None

    @property
    def under_way(self) -> tuple[str, ...]:
        """The running work, in words, oldest first."""
        return tuple(str(work.what) for work in self.at_work)

    def working(self, what: object) -> AbstractContextManager[object]:
        """The body is a step's function: a stop waits for it. `what` it is, in words, is asked only then."""
        return _Work(what, asyncio.current_task(), self)

    @contextmanager
    def held(self, what: object) -> Iterator[None]:
        """The body finishes before the run stops, with all its steps."""
        with _Work(what, asyncio.current_task(), self, _held_here.get()) as work:
            token = _held_here.set(work)
            try:
                yield
            finally:
                _held_here.reset(token)

    def watch(self, main: asyncio.Task[Any]) -> None:
        """From now on a stop cancels `main`."""
        self._main, self._told, self.has_told = main, 0.0, False
        self.forced = self.has_cancelled = self._wanted = False

    def want(self) -> None:
        """Request a stop."""
        self._wanted = True
        self._look_soon(_PATIENCE)

    def want_no_more(self) -> None:
        """The request is withdrawn before any code was stopped for it."""
        self._wanted = False

    def told(self) -> None:
        """A call has just told its caller to stop. If the caller is the agent itself, it is unwinding."""
        self.has_told = True
        if self._main is not None and asyncio.current_task() is self._main and not self._told:
            self._told = time.monotonic()

    def still_waits(self) -> None:
        """The agent itself was stopped by a call, but first waits for its other scopes."""
        self._told = 0.0
        if self._wanted:
            self._look_soon(_PATIENCE)

    def force(self) -> tuple[str, ...]:
        """Stop without waiting for running work. Returns what that was."""
        cut_off = self.under_way
        self.forced = self.has_cancelled = self._wanted = True
        for work in self.at_work:
            if work.task is not None:
                work.task.cancel()
        if self._main is not None:
            self._main.cancel()
        return cut_off

    def has_ended(self, work: _Work) -> None:
        del self.at_work[work]
        if self._wanted:
            self._look_soon(_PATIENCE)

    def _look_soon(self, delay: float) -> None:
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_later(delay, self._look)

    def _look(self) -> None:
        self._is_planned = False
        main = self._main
        if main is None or main.done() or self.at_work or not self._wanted:
            return
        if not self._told or time.monotonic() > self._told + _UNWINDING:
            self.has_cancelled = True
            main.cancel()  # at a safe point: between two steps, or while it waits for something else
        self._look_soon(1.0)  # it may have caught that


_WEIGHT = {"edited": 0, "sleeping": 1, "waiting": 2, "paused": 3}

_LOOK_AGAIN = 0.05


class AgentStopped(asyncio.CancelledError):
    """Unwinds an agent. It is a cancellation, so `except Exception` and other tasks of a TaskGroup do not catch it.
    Once one is raised, neither the call nor its scope has a result, even if the agent catches it."""

    def __init__(self) -> None:
        super().__init__()
        if (scope := current_scope.get()) is not None:
            scope.stop()


class Suspended(AgentStopped):
    """The run can't continue now."""


class Suspension(Struct, frozen=True):
    """Why a run stops early, and in which status. After an edit (`edited`) it is entered again at once."""

    status: Literal["waiting", "paused", "sleeping", "edited"]
    reason: str
    until: str = ""  # for a sleeping run: UTC, ISO 8601
    error: Failure | None = None
    restarts: bool = False  # it sleeps until another process continues it, which the supervisor starts at once


class StopRequests:
    """The requests to stop, and what they mean for the current code. For one opening, on its loop."""

    def __init__(self, workspace: Workspace, interruption: Interruption):
        self._workspace, self._journal, self._moment = workspace, workspace.journal, workspace.moment
        self.interruption, self.drain = interruption, Drain()
        self.suspension: Suspension | None = None
        self.has_asked = False  # a person is to say whether an effect has happened
        self.failed: SatchelError | None = None  # an error in code that no caller waits for
        self._reasons = 0  # to stop, since the agent was entered
        self.on_pause: Callable[[], Any] | None = None  # called once a pause was asked for
        self.on_withdrawal: Callable[[], Any] | None = None  # called once that pause was withdrawn

    def begin(self, main: asyncio.Task[Any]) -> None:
        """The agent is entered in the task `main`, for the first time or again (see `Context.begin`)."""
        self.suspension, self.has_asked, self._reasons = None, False, 0
        self.drain.watch(main)

    def fail(self, error: SatchelError) -> None:
        """Raise this error at the next call, unless an earlier error is there."""
        self.failed = self.failed or error

    def check_going_on(self) -> None:
        """Every call is a place to stop: when a person is needed, a signal came, or the disk failed. Records a stop by
        a signal."""
        if self.failed:
            raise self.failed
        self._journal.check()
        if self.interruption.count:
            self.obey_signals()
        if self.suspension and not self.drain.is_held_here:
            self.drain.told()
            raise Suspended

    def check_may_commit(self) -> None:
        """A scope whose function has ended by itself may commit although the run is pausing. A scope that was told to
        stop may not, even if it caught that, and neither may one that an edit may concern. In an uninterrupted block
        only the scope's own stop counts: an effect in doubt, or a question."""
        if self.failed:
            raise self.failed
        if self.suspension is None:
            return
        is_whole = not (self.drain.has_cancelled or (scope := current_scope.get()) is None or scope.was_stopped)
        goes_on = (self.suspension.status == "paused" or self.suspension.restarts) and not self.has_asked
        if not (is_whole and (goes_on or self.drain.is_held_here)):
            self.drain.told()
            raise Suspended

    def obey_signals(self) -> None:
        """Do what the signals so far ask for. On the loop: a handler must not write records."""
        interruption, drain = self.interruption, self.drain
        if interruption.count and not (self.suspension and self.suspension.status == "paused"):
            self.pause(PauseRequested(reason=SIGNAL, by=interruption.name))
        if interruption.count > 1 and not drain.forced:
            self.force()

    def pause(self, request: PauseRequested, error: Failure | None = None) -> None:
        """The run must stop at the next safe point. The request is durable when this returns. The first request counts,
        but a cancellation counts more."""
        known = self._moment.pause
        if known is None or (request.mode == "cancel" != known.mode):
            try:
                self._journal.add(request)
                self._journal.flush()
            except SatchelError as failure:
                self.failed = failure
        self.suspend(Suspension("paused", request.reason, error=error))
        if self.on_pause:
            self.on_pause()

    @property
    def can_withdraw(self) -> bool:
        """Whether the run can continue as if its pause had never been requested: there is no other reason to stop, and
        no code was stopped yet."""
        is_alone = self._reasons == 1 and not (self.has_asked or self.failed or self.interruption.count)
        is_paused = self.suspension is not None and self.suspension.status == "paused"
        return is_alone and is_paused and not (self.drain.has_told or self.drain.has_cancelled or self.drain.forced)

    def withdraw(self) -> None:
        """The pause is over, and that is on record. Only if `can_withdraw`."""
        self.suspension, self._reasons = None, 0
        self.drain.want_no_more()
        if self.on_withdrawal:
            self.on_withdrawal()

    def force(self) -> None:
        """Do not wait any longer for running work."""
        began = datetime.fromisoformat(self._moment.pause.requested_at) if self._moment.pause else datetime.now(UTC)
        waited = (datetime.now(UTC) - began).total_seconds()
        self._journal.add(Forced(under_way=self.drain.force(), waited=round(max(0.0, waited), 3)))

    def sleep(self, seconds: float, reason: str) -> NoReturn:
        """Let the run sleep without a process, and resume in `seconds`."""
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        reason += ", in more than a day; it is called again after one" if seconds >= A_DAY else ""
        self.suspend(Suspension("sleeping", reason, time_text(until)))
        raise Suspended

    def wait_for_person(self) -> None:
        """At the next safe point the run stops, and waits for an answer."""
        self.suspend(Suspension("waiting", "a person is asked"))

    def restart(self, reason: str) -> None:
        """At the next safe point the run stops, for another process to continue it. It sleeps until a time that is
        over: if the supervisor dies now, any start continues it."""
        if self.suspension is None:
            self.suspend(Suspension("sleeping", reason, self._moment.opened_at, restarts=True))

    async def check_has_it(self) -> None:
        """Return when no other process can have taken the workspace. Else LeaseHeld: then no effect begins. The run may
        have been restored from its backup, so the first look at that comes before, unless it takes long."""
        if (follower := self._workspace.follower) is not None:
            await self._has_looked(follower)
        heartbeat = self._workspace.owned.heartbeat
        if heartbeat is None:
            return
        while not heartbeat.is_in_time:
            heartbeat.check()
            self.check_going_on()
            await asyncio.sleep(_LOOK_AGAIN)
        heartbeat.check()

    async def _has_looked(self, follower: Follower) -> None:
        until = time.monotonic() + FIRST_LOOK
        while not follower.looked.is_set() and time.monotonic() < until:
            self.check_going_on()
            await asyncio.sleep(_LOOK_AGAIN)
        self._workspace.journal.check()

    def suspend(self, suspension: Suspension) -> None:
        """From now on every call unwinds. The weightiest of several reasons is kept, and the shorter of two sleeps."""
        known = self.suspension
        self._reasons += 1
        if (
            known is None
            or _WEIGHT[suspension.status] > _WEIGHT[known.status]
            or (suspension.status == known.status == "sleeping" and suspension.until < known.until)
        ):
            self.suspension = suspension
        self.drain.want()


Place = tuple[str, str, Key]
"""Agent, scope and call."""


class ReplayTarget(Struct, eq=False):
    """For a replay: a run that does one item, or named scope, of its own agent, does no effect, and stops.

    The item, by its id; by its text if `key` is empty. Afterwards `end` says what has stopped the run: the item is
    done, it has come to an effect that is not on record, or the agent did not come to it. `called`: the recorded
    effects that the run has called again."""

    key: str
    title: str
    end: Literal["", "done", "effect", "missed"] = ""
    reason: str = ""
    called: set[Place] = field(default_factory=set)

    def is_it(self, key: str | None, title: str) -> bool:
        return key == self.key if self.key else title == self.title

    def done(self, stopping: StopRequests) -> None:
        self._end(stopping, "done", f"{self.title!r} is replayed")

    def before_effect(self, stopping: StopRequests, words: str) -> Suspended:
        """The exception to raise there: nothing outside changes in a replay."""
        self._end(stopping, "effect", f"a replay does no effect, and this one would begin: {words}")
        return Suspended()

    def missed(self, stopping: StopRequests, why: str) -> Suspended:
        """The exception to raise in place of other work."""
        self._end(stopping, "missed", f"the agent did not come to {self.title!r}: {why}")
        return Suspended()

    def _end(self, stopping: StopRequests, end: Literal["done", "effect", "missed"], reason: str) -> None:
        if not self.end:
            self.end, self.reason = end, reason
        stopping.pause(PauseRequested(reason=self.reason, by="satchel"))
