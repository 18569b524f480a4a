"""Ask a run to stop at its next safe point, for a while or for good; withdraw that before it has stopped, so that its
process continues; and the emergency stop, of one run or of many at once, with its undoing.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import (
    DEFINITION,
    SIGNAL,
    LeaseHeld,
    NoWorkspace,
    Refused,
    SatchelError,
    UsageError,
    arguments,
    in_force,
    moment_after,
    myself,
    time_text,
)
from ...workspace.formats import pause_file
from ...workspace.inspect import Lease, Look, Report, define, held, lease, look, look_beside, transfer_file
from ...workspace.journal import PauseRequested
from ...workspace.lifecycle import PauseWish, pausing
from ...workspace.secrets import redactor_of
from ...workspace.state import EXIT_CODES, Status
from ...workspace.store import FileChanged
from ...workspace.views import BRIEF, guarded_files
from ..status import Place, Steps
from ..supervision import FORCE_AFTER, StopResult, spared, stop

if TYPE_CHECKING:
    from ...workspace.lifecycle import Workspace

_POLL = 0.1
_MARGIN = 20.0
"""Seconds that a supervisor has to notice a pause.yaml, and to close what it has killed; or that a process has beyond
its drain timeout to stop, and to start the run again."""

_SOON = 3.0
"""Seconds in which a process notices it as a rule. Then a person is told who it is that is waited for."""

_GONE = 6.0
"""Seconds after which a process that has let go of the run does not take it again."""

_ENDED = EXIT_CODES.keys() - {"paused"}


class PauseResult(Struct, frozen=True):
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
            found = moment_after(until, now) if isinstance(until, str) else until
        text = time_text(found.astimezone(UTC))
    except OverflowError:
        raise UsageError(
            f"{until!r} is too far away", remedy="leave it out: the pause then lasts until you resume"
        ) from None
    if found.astimezone(UTC) <= now:
        raise UsageError(f"{text} has passed", remedy="give a later time, or call resume() if the run shall go on")
    return text


def ask(place: Place, request: PauseRequested, *, wait: bool) -> Steps[PauseResult]:
    """Ask for a stop, and wait for it if `wait`."""
    pause_file.check_wish(place.url, reason=request.reason, by=request.by, resume=request.resume)
    stopping = _ask(place, request)
    return (yield from stopped(place)) if wait and not stopping.is_over else stopping


def _ask(place: Place, request: PauseRequested) -> PauseResult:
    store = place.store
    seen = look_beside(store)
    transfer_file.refuse_backup(store)
    seen.check_has_agent(store.url)
    moment, redactor = seen.moment, redactor_of(seen.definition)
    request = replace(request, reason=redactor.text(request.reason), by=redactor.text(request.by))
    if moment.is_over:
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
            return PauseResult(moment.status, f"already paused ({pausing.said(moment.pause)})")
    pausing.ask(store, request, moment)
    if holder is None:
        try:
            return _settle(seen, place, request)
        except LeaseHeld:  # a process has just started it
            holder = lease.holder(store)
    who = holder.process if holder else "the process that runs it"
    mistake = f" ({in_force(seen.mistake)})" if seen.mistake else ""
    return PauseResult("requested", f"{who} stops at its next safe point{mistake}")


def _settle(seen: Look, place: Place, request: PauseRequested) -> PauseResult:
    """No process runs it, so only record the request."""
    from ...workspace.lifecycle import opened  # `status` needs a name of this module, and opens nothing

    with opened(place.store, "pause", Report()) as workspace:
        wanted = pausing.wish(place.store, workspace.moment)
        if workspace.moment.is_over:  # since it was looked at
            return _too_late(workspace, wanted)
        if request.mode == "cancel":
            return _cancel(workspace, wanted, place, request)
        # The file may have been removed since it was written. That is no instruction.
        pausing.stop(workspace, wanted or pausing.PauseWish(), request if wanted is None else None)
        workspace.close("paused", request.reason)
    was = "; it had not started" if seen.moment.is_new else ""
    return PauseResult("paused", f"paused{was}; `{place.command('resume')}` continues")


def _cancel(workspace: Workspace, wanted: PauseWish | None, place: Place, request: PauseRequested) -> PauseResult:
    """Only a run can tell what the agent has to undo. Without that, the run ends here."""
    if wanted is None or wanted.mode != "cancel":  # as for a pause
        workspace.journal.add(request)
    else:
        pausing.add_end(workspace, wanted, "")
    workspace.journal.flush()
    if pausing.may_have_to_undo(workspace.moment):
        workspace.close()
        said = f"will be cancelled; `{place.command('run')}` lets its agent undo what it must"
        return PauseResult("paused", said)
    pausing.close_cancelled(workspace, wanted, workspace.moment.pause.reason if workspace.moment.pause else "")
    return PauseResult("cancelled", "cancelled")


def _too_late(workspace: Workspace, wanted: PauseWish | None) -> PauseResult:
    """Another request, or the agent, was faster. No record leads out of that."""
    status = workspace.moment.status
    workspace.close()
    guarded_files.remove(workspace.store, pause_file.PATH, wanted.version if wanted else None)
    return PauseResult(status, f"the run is {status} by now")


def stopped(place: Place) -> Steps[PauseResult]:
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
            return PauseResult(status, status)
        if holder is not None and now > began + limit:
            said = f"{holder.process} has not stopped in {limit:.0f} s; `{place.command('stop')}` kills it"
            return PauseResult("requested", said)
        yield from place.look_again(_POLL)


class WithdrawResult(Struct, frozen=True):
    """The outcome of withdrawing a pause.

    `status`: "withdrawn", and the process continues the run; "requested" while that process has not noticed it; else
    the status of a run that had stopped before: "paused", "completed", ... Then no process continues it. `said` is one
    line for people.
    """

    status: Status | Literal["withdrawn", "requested", "interrupted"]
    said: str


def is_pausing(place: Place) -> bool:
    """Whether a process runs it and has been asked to stop. False also if the files don't tell."""
    with suppress(SatchelError, OverflowError):  # a number that can't be a process
        if lease.holder(place.store) is not None:
            moment = look_beside(place.store).moment
            wanted = pausing.wish(place.store, moment, BRIEF)
            return wanted is not None and not wanted.in_force
    return False


def withdraw(place: Place) -> Steps[WithdrawResult]:
    """Write what a person would write, and wait until the run has noticed it."""
    store, is_written, is_told = place.store, False, False
    lifted: str | None = None  # the pause that was over before
    began, gone_since = time.monotonic(), float("inf")
    while True:
        seen, holder, now = look_beside(store), lease.holder(store), time.monotonic()
        moment, definition = seen.moment, seen.definition
        gone_since = min(gone_since, now) if holder is None else float("inf")
        wanted = pausing.wish(store, moment)
        if lifted is None:
            lifted = moment.lifted
        if not is_written:
            _check_pause(place, seen, wanted, holder)
        if is_written and moment.lifted != lifted:
            now_is = f"{holder.process} continues" if holder else f"the run is {moment.status} by now"
            return WithdrawResult("withdrawn", f"the pause is withdrawn; {now_is}")
        if holder is None and is_written and (moment.status in _ENDED or now > gone_since + _GONE):
            status = "interrupted" if moment.is_interrupted else moment.status
            return WithdrawResult(status, f"the run had stopped before: it is {status}")
        limit = definition.drain_timeout + FORCE_AFTER + _MARGIN if definition.drain_then == "force" else None
        if holder is not None and is_written and not is_told and now > began + _SOON:
            is_told = True
            place.tell(f"waiting for {holder.process} to notice it" + (f", at most {limit:.0f} s" if limit else ""))
        if holder is not None and limit is not None and now > began + limit:
            said = f"{holder.process} has not noticed it in {limit:.0f} s; `{place.command('stop')}` kills it"
            return WithdrawResult("requested", said)
        if wanted is not None and not wanted.is_overruling and holder is not None:
            is_written |= _write(place, wanted)
        yield from place.look_again(_POLL)


def _check_pause(place: Place, seen: Look, wanted: PauseWish | None, holder: Lease | None) -> None:
    """Refused, with the way out, if what stops the run is no pause that can be withdrawn."""
    url = place.url
    if holder is None or wanted is None or wanted.in_force:
        raise UsageError(
            "has no pause to withdraw",
            path=url,
            why="no process is about to stop it",
            remedy=f"`{place.command('status')}` shows where it is",
        )
    if wanted.mode == "cancel":
        raise Refused(
            "is being cancelled",
            path=url,
            why="a cancellation can't be withdrawn",
            remedy="its files stay, and `satchel fork` makes another run of them",
        )
    if wanted.mode == "emergency":
        raise Refused(
            "is being killed",
            path=url,
            why="an emergency stop can't be withdrawn",
            remedy=f"`{place.command('resume')}` continues it when it has stopped",
        )
    if wanted.recorded is not None and wanted.recorded.reason == SIGNAL:
        raise Refused(
            "is being stopped by a signal",
            path=url,
            why=f"{holder.process} has to end",
            remedy=f"`{place.command('resume')}` continues it when it has stopped",
        )
    pausing.check_may_go_on(wanted)


def _write(place: Place, wanted: PauseWish) -> bool:
    """Write `status: resume`. False if the run is about to fill in the file, and would write over it."""
    pause = wanted.recorded
    if wanted.file is None or (pause is not None and wanted.file.requested_at != pause.requested_at):
        return False
    store = place.store
    try:
        found = store.read(pause_file.PATH, limit=pause_file.LIMIT)
        if found.version != wanted.version:
            return False
        store.replace(pause_file.PATH, pause_file.filled(found.data, {"status": "resume"}), if_version=found.version)
    except (FileNotFoundError, FileChanged):
        return False
    return True


def stop_all(places: Place | Iterable[Place], *, reason: str = "emergency", by: str | None = None) -> list[StopResult]:
    """Kill what runs these workspaces, all at once; see `Handle.stop`. Returns the outcome of each, in order.

    Of those that `open_all` has found, nothing is written to a run that no process has and that has never begun
    ("new"), or that is already paused until a person resumes it ("idle").

    UsageError if one of them is not a workspace, or if pause.yaml can't contain the `reason` or `by`; then none is
    stopped. Workspaces that `open_all` has found are accepted.
    """
    arguments.no_loop("stop_all", "call `await asyncio.to_thread(satchel.stop_all, ...)` there")
    given = [places] if isinstance(places, str | bytes) or not isinstance(places, Iterable) else [*places]
    if wrong := [each for each in given if not isinstance(each, Place)]:
        raise UsageError(f"{wrong[0]!r} is no handle", remedy="give what `satchel.open` or `satchel.open_all` returns")
    for place in given:
        _check_workspace(place, reason, by or myself())
    done = {place.url: StopResult(place.url, "idle", said="programs hold it") for place in given if _kind(place)}
    done |= spared([place.store for place in given if place.was_found])
    rest = iter(_stopped([place for place in given if place.url not in done], reason, by or myself()))
    return [done.get(place.url) or next(rest) for place in given]


def stop_one(place: Place, reason: str, by: str | None) -> StopResult:
    """`Handle.stop`: whatever state it is in."""
    _check_workspace(place, reason, by or myself())
    if kind := _kind(place):
        raise held(place.url, kind)
    (stopped,) = _stopped([place], reason, by or myself())
    return stopped


def _kind(place: Place) -> str:
    """What programs hold it as. Empty also if the files don't tell."""
    with suppress(SatchelError, OSError):
        return define(place.store).kind
    return ""


def _check_workspace(place: Place, reason: str, by: str) -> None:
    if not place.was_found and place.store.version(DEFINITION) is None:
        transfer_file.refuse_moved(place.store, None)
        raise NoWorkspace(
            "is not a workspace", path=place.url, remedy="`satchel ls` lists the workspaces under a folder"
        )
    pause_file.check_wish(place.url, reason=reason, by=by)


def _stopped(places: list[Place], reason: str, by: str) -> list[StopResult]:
    elsewhere = next((place for place in places if place.store.abilities.remote), None)
    if elsewhere:
        elsewhere.tell("writing pause.yaml, and waiting some seconds for processes on other machines")
    mine = {place.url for place in places if _is_mine(place)}
    stopped = iter(stop([place.store for place in places if place.url not in mine], reason, by))
    return [_drain(place, reason, by) if place.url in mine else next(stopped) for place in places]


class Undone(Struct, frozen=True):
    """A run that an emergency stop has paused. `why` it stays so; empty if it goes on at its next start."""

    url: str
    why: str = ""


def undo_all(places: Iterable[Place], reason: str) -> list[Undone]:
    """Undo the emergency stops with this `reason`: each of these runs goes on at its next start. Starts none. Returns
    the runs that had been stopped so, in order. UsageError if there is none."""
    others: Counter[str] = Counter()
    found = [undone for place in places if (undone := _undo(place, reason, others)) is not None]
    if not found:
        reasons = [f"{each!r} ({runs} run{'s' * (runs > 1)})" for each, runs in others.most_common()]
        raise UsageError(
            f"no run was stopped with the reason {reason!r}",
            why=f"the reasons are: {', '.join(reasons)}" if reasons else "none of these runs is stopped",
            remedy="name one of them" if reasons else "`satchel ls` lists the workspaces under a folder",
        )
    return found


def _undo(place: Place, reason: str, others: Counter[str]) -> Undone | None:
    """None if it was not stopped with this reason. `others` counts the other reasons."""
    store = place.store
    try:
        there = store.read(pause_file.PATH, limit=pause_file.LIMIT)
        pause = pause_file.parse(there.data)
        if pause.mode != "emergency" or pause.status == "resume":
            return None
        if pause.reason != reason:
            others[pause.reason] += 1
            return None
        store.replace(pause_file.PATH, pause_file.filled(there.data, {"status": "resume"}), if_version=there.version)
        return Undone(place.url)
    except FileNotFoundError:
        return None
    except FileChanged:
        return Undone(place.url, "pause.yaml was changed meanwhile")
    except (SatchelError, OSError) as error:
        return Undone(place.url, str(error))


def _is_mine(place: Place) -> bool:
    """Whether this process runs or supervises it, and would kill itself."""
    try:
        held = lease.holder(place.store)
    except (SatchelError, OSError):
        return False  # the stop says what is wrong
    if held is None or held.host != socket.gethostname() or held.url != place.url:
        return False
    return os.getpid() in (held.pid, held.supervisor.pid if held.supervisor else 0)


def _drain(place: Place, reason: str, by: str) -> StopResult:
    from ...workspace.journal import PauseRequested  # slow: the kill of the others must not wait for it
    from ..status import at_once

    try:
        asked = at_once(ask(place, PauseRequested(reason=reason, by=by), wait=False))
    except SatchelError as error:  # it has just completed, say
        return StopResult(place.url, "failed", said=str(error))
    if asked.is_over:
        return StopResult(place.url, "idle", said=asked.said)
    return StopResult(place.url, "draining", said="this process runs it, and stops it at its next safe point")
