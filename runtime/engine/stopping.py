"""Whether a run may go on, and why it stops before its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct

from ...workspace.base import SIGNAL, SatchelError
from ...workspace.journal.records import Failure, Forced, PauseRequested
from ...workspace.lifecycle import Workspace
from ..steps import current_scope
from .drain import Drain
from .signals import Interruption

_WEIGHT = {"edited": 0, "sleeping": 1, "waiting": 2, "paused": 3}

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


class Suspension(Struct, frozen=True):
    """Why a run stops before its end, and how it is left. For what was `edited` it is entered again at once."""

    status: Literal["waiting", "paused", "sleeping", "edited"]
    reason: str
    until: str = ""  # of a sleeping one: UTC, ISO 8601
    error: Failure | None = None


class Stopping:
    """The wishes to stop that have come, and what they mean for the code that asks. Of one opening, on its loop."""

    def __init__(self, workspace: Workspace, interruption: Interruption):
        self._workspace, self._journal, self._moment = workspace, workspace.journal, workspace.moment
        self.interruption, self.drain = interruption, Drain()
        self.suspension: Suspension | None = None
        self.has_asked = False  # a person is to say whether an effect has happened
        self.failed: SatchelError | None = None  # what went wrong where nobody was waiting for it
        self.on_pause: Callable[[], Any] | None = None  # called once a pause was asked for

    def begin(self, main: asyncio.Task[Any]) -> None:
        """The agent is entered, in the task `main`; again, if a pause in this process is over."""
        self.suspension, self.has_asked = None, False
        self.drain.watch(main)

    def fail(self, error: SatchelError) -> None:
        """Raise it at the next call, unless something has gone wrong before."""
        self.failed = self.failed or error

    def check_going_on(self) -> None:
        """Every call is a place to stop: when a person is needed, when a signal came, when the disk failed."""
        if self.failed:
            raise self.failed
        self._journal.check()
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
        goes_on = self.suspension.status == "paused" and not self.has_asked
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

    def force(self) -> None:
        """Do not wait any longer for what is under way."""
        began = datetime.fromisoformat(self._moment.pause.requested_at) if self._moment.pause else datetime.now(UTC)
        waited = (datetime.now(UTC) - began).total_seconds()
        self._journal.add(Forced(under_way=self.drain.force(), waited=round(max(0.0, waited), 3)))

    async def check_has_it(self) -> None:
        """Return when nobody else can have taken the workspace. LeaseHeld if somebody has: then no effect begins."""
        heartbeat = self._workspace.owned.heartbeat
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
