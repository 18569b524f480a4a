"""Ask a run to stop at its next safe point: for a while, or for good."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import LeaseHeld, UsageError, in_force, time_text, times
from ...workspace.formats import pause_file
from ...workspace.inspect import Look, Report, lease, look, look_beside
from ...workspace.journal.records import PauseRequested
from ...workspace.lifecycle import pausing
from ...workspace.secrets import redactor_of
from ...workspace.state import Status
from ...workspace.views import stable_read
from ..supervision.child import FORCE_AFTER
from .place import Place
from .waiting import Steps

_POLL = 0.1
_MARGIN = 20.0
"""Seconds that a supervisor has to notice a pause.yaml, and to close what it has killed."""


class Stopping(Struct, frozen=True):
    """The outcome of asking a run to stop.

    `status`: "requested" while a process runs it and has not stopped yet; "interrupted" if that process has died on its
    way; else the status of the stopped run: "paused", "cancelled", "completed", ... `said` is one line for people. Not
    guaranteed: that it is still so, since another person may resume the run at any time.
    """

    status: Status | Literal["requested", "interrupted"]
    said: str

    @property
    def is_over(self) -> bool:
        """The run has stopped."""
        return self.status != "requested"


def until_text(until: str | datetime | timedelta | None) -> str:
    """A time in the form of records. UsageError for a text that is no time, and for a time that has passed."""
    if until is None:
        return ""
    now = datetime.now(UTC)
    if not isinstance(until, str | datetime | timedelta):
        raise UsageError(f"{until!r} is not a time", remedy="give a datetime, a timedelta, or a text like `45m`")
    try:
        if isinstance(until, timedelta):
            found = now + until
        else:
            found = times.moment_after(until, now) if isinstance(until, str) else until
        text = time_text(found.astimezone(UTC))
    except OverflowError:
        raise UsageError(
            f"{until!r} is too far away", remedy="leave it out: the pause then lasts until you resume"
        ) from None
    if found.astimezone(UTC) <= now:
        raise UsageError(f"{text} has passed", remedy="give a later time, or call resume() if the run shall go on")
    return text


def ask(place: Place, request: PauseRequested, *, wait: bool) -> Steps[Stopping]:
    """Ask for a stop, and wait for it if `wait`."""
    pause_file.check_wish(place.url, reason=request.reason, by=request.by, resume=request.resume)
    stopping = _ask(place, request)
    return (yield from stopped(place)) if wait and not stopping.is_over else stopping


def _ask(place: Place, request: PauseRequested) -> Stopping:
    store = place.store
    seen = look_beside(store)
    moment, redactor = seen.moment, redactor_of(seen.definition)
    request = replace(request, reason=redactor.text(request.reason), by=redactor.text(request.by))
    if moment.is_finished or moment.status == "cancelled":
        raise UsageError(
            "was already cancelled" if moment.status == "cancelled" else "has already completed",
            path=store.url,
            remedy="there is nothing to stop",
        )
    holder = lease.holder(store)
    if moment.pause is not None and moment.pause.paused_at and moment.clean:
        wanted = pausing.wish(store, moment)
        # The process that has it waits for the end of a short pause and takes no other request.
        if wanted is not None and (pausing.suffices(wanted, request) or (holder and request.mode == "drain")):
            return Stopping(moment.status, f"already paused ({pausing.said(moment.pause)})")
    pausing.ask(store, request, moment)
    if holder is None:
        try:
            return _settle(seen, place, request)
        except LeaseHeld:  # a process has just started it
            holder = lease.holder(store)
    who = holder.process if holder else "the process that runs it"
    mistake = f" ({in_force(seen.mistake)})" if seen.mistake else ""
    return Stopping("requested", f"{who} stops at its next safe point{mistake}")


def _settle(seen: Look, place: Place, request: PauseRequested) -> Stopping:
    """No process runs it, so only record the request."""
    from ...workspace.lifecycle import opened  # `status` needs a name of this module, and opens nothing

    store, moment = place.store, seen.moment
    if request.mode == "cancel":
        return _cancel(place, request)
    with opened(store, "pause", Report()) as workspace:
        wanted = pausing.wish(store, workspace.moment)
        # The file may have been removed since it was written. That is no instruction.
        pausing.stop(workspace, wanted or pausing.Wish(), request if wanted is None else None)
        workspace.close("paused", request.reason)
    was = "; it had not started" if moment.is_new else ""
    return Stopping("paused", f"paused{was}; `{place.command('resume')}` continues")


def _cancel(place: Place, request: PauseRequested) -> Stopping:
    """Only a run can tell what the agent has to undo. Without that, the run ends here."""
    from ...workspace.lifecycle import opened

    store = place.store
    with opened(store, "pause", Report()) as workspace:
        wanted = pausing.wish(store, workspace.moment)
        if wanted is None or wanted.mode != "cancel":  # as above
            workspace.journal.add(request)
        else:
            pausing.add_end(workspace, wanted, "")
        workspace.journal.flush()
        if pausing.may_have_to_undo(workspace.moment):
            workspace.close()
            said = f"will be cancelled; `{place.command('run')}` lets its agent undo what it must"
            return Stopping("paused", said)
        workspace.close("cancelled", workspace.moment.pause.reason if workspace.moment.pause else "")
        stable_read.remove(store, pause_file.PATH, wanted.version if wanted else None)
    return Stopping("cancelled", "cancelled")


def stopped(place: Place) -> Steps[Stopping]:
    """Wait until no process has it and it is closed. Gives up, with the status "requested", after the time in which a
    supervisor would have killed it."""
    store = place.store
    definition = look_beside(store).definition
    limit = definition.drain_timeout + FORCE_AFTER + _MARGIN if definition.drain_then == "force" else float("inf")
    began, free_since = time.monotonic(), float("inf")
    while True:
        now, holder = time.monotonic(), lease.holder(store)
        free_since = min(free_since, now) if holder is None else float("inf")
        # Once the process is killed, its supervisor closes the workspace, unless that has died, too.
        if holder is None and (
            (moment := look(store, described=definition).moment).clean or now > free_since + _MARGIN
        ):
            status = "interrupted" if moment.is_interrupted else moment.status
            return Stopping(status, status)
        if holder is not None and now > began + limit:
            said = f"{holder.process} has not stopped in {limit:.0f} s; `{place.command('stop')}` kills it"
            return Stopping("requested", said)
        yield from place.look_again(_POLL)
