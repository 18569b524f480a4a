"""Repair a workspace after its process was killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple, TypeVar

from ...workspace.base import InvalidFile, LeaseHeld, SatchelError
from ...workspace.formats import pause_file
from ...workspace.inspect import Report, lease, look
from ...workspace.journal import Failure, Forced, PauseRequested
from ...workspace.lifecycle import Workspace, opened, pausing
from ...workspace.state import ROOT, Moment, Status
from ...workspace.store import Store
from ...workspace.views import BRIEF, Unsettled, guarded_files

T = TypeVar("T")

_PATIENCE = 2.0  # seconds until the lock of a process that was killed must be free


class Left(NamedTuple):
    """The state of the workspace afterwards. `was_closed`: the process itself, or a later one, had closed it.
    `is_between`: it had closed it for another process to continue the run, because of `restart_every`."""

    status: Status = "paused"
    was_closed: bool = False
    is_between: bool = False
    error: SatchelError | OSError | None = None  # what prevented the repair


def after_kill(store: Store, request: PauseRequested, waited: float, since: datetime) -> Left:
    """Bring the files to one moment after a forced stop, and record what it was. A run that was closed for another
    process is paused, as `request` or pause.yaml says. `request` is the pause that the process may not have recorded,
    `waited` how many seconds it had for it, `since` when it was started."""
    is_between = False

    def put_right() -> Left:
        nonlocal is_between
        moment = look(store).moment
        is_between = moment.clean and moment.status == "sleeping" and moment.until == moment.opened_at
        if is_between:
            return Left(_pause(store, request), is_between=True)
        if moment.clean:
            was_closed = bool(moment.opened_at) and datetime.fromisoformat(moment.opened_at) >= since
            return Left(moment.status, was_closed) if was_closed else Left()
        with opened(store, "forced", Report(), backs_up=True) as workspace:
            _describe(workspace, request, waited)
        return Left(workspace.moment.status)

    try:
        return _once_it_is_free(store, put_right)
    except (SatchelError, OSError) as error:
        return Left(is_between=is_between, error=error)


def _pause(store: Store, request: PauseRequested) -> Status:
    with opened(store, "pause", Report(), backs_up=True) as workspace:
        wanted: pausing.PauseWish | None = None
        with suppress(InvalidFile, Unsettled):
            wanted = pausing.wish(store, workspace.moment, BRIEF)
        is_asked = wanted is not None and pausing.requested(wanted) is not None
        pausing.stop(workspace, wanted or pausing.PauseWish(), None if is_asked else request)
        workspace.close("paused", workspace.moment.reason)
    return workspace.moment.status


def after_crashes(store: Store, why: str) -> SatchelError | OSError | None:
    """Record that the run is not started again, and why. Returns what prevented that. A run that was paused, and died
    before it had opened the workspace, stays paused."""

    def put_right() -> None:
        moment = look(store).moment
        if moment.clean and moment.pause is not None:
            return
        with opened(store, "recover", Report(), backs_up=True) as workspace:
            if workspace.was_finished:
                workspace.close()
            else:
                workspace.close("failed", why, Failure("Crashed", why))

    try:
        _once_it_is_free(store, put_right)
    except (SatchelError, OSError) as error:
        return error
    return None


def _once_it_is_free(store: Store, put_right: Callable[[], T]) -> T:
    """The result of this function, tried again while the lock of the dead process is still held."""
    give_up = time.monotonic() + _PATIENCE
    while True:
        try:
            store.refresh()
            return put_right()
        except LeaseHeld:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)


def stop_wanted(store: Store, since: datetime) -> PauseRequested | None:
    """The requested stop of a run whose process, started at `since`, has just died; None if it may be started again. A
    pause.yaml that can't be understood is a plain pause, and so is one of a workspace that can't be read. A pause that
    was over when the process was started does not come back because the process died before it could record that."""
    file = lease.read_pause(store)
    try:
        wanted = pausing.wish(store, look(store).moment)
    except SatchelError:
        return None if file is None else lease.pause_request(file, "")
    if wanted is None or wanted.is_overruling:
        return None
    pause = wanted.recorded
    if pause is not None and pause.paused_at and wanted.is_lifted and datetime.fromisoformat(pause.paused_at) < since:
        return None
    if wanted.file is not None:
        return lease.pause_request(wanted.file, wanted.by)
    return wanted.recorded.request if wanted.recorded else None


def after_stop(store: Store) -> str:
    """Record the emergency stop in the files of a run that no process runs any more. If that is not possible, the next
    start does it; the stop itself is already durable. Returns why there was nothing to stop, in words, or nothing."""
    with suppress(SatchelError, OSError):
        seen = look(store)
        if seen.moment.is_new:
            return ""  # it has never run, so the request in the file is enough
        with opened(store, "forced", Report(), seen=seen, backs_up=True) as workspace:
            wanted = pausing.wish(store, workspace.moment)
            if workspace.was_finished or wanted is None:
                workspace.close()
                if not workspace.was_finished:
                    return ""
                guarded_files.remove(store, pause_file.PATH, wanted.version if wanted else None)
                return "it was cancelled" if workspace.moment.status == "cancelled" else "it has completed"
            if not wanted.in_force or pausing.requested(wanted) is not None:
                pausing.stop(workspace, wanted)
            if wanted.mode == "cancel" and not pausing.may_have_to_undo(workspace.moment):
                workspace.close("cancelled", workspace.moment.reason)
                guarded_files.remove(store, pause_file.PATH, store.version(pause_file.PATH))
                return "it is cancelled, as was requested before"
            workspace.close("paused", workspace.moment.reason)
    return ""


def _describe(workspace: Workspace, request: PauseRequested, waited: float) -> None:
    store, moment, journal = workspace.store, workspace.moment, workspace.journal
    if workspace.was_finished:
        workspace.close()
        return
    wanted: pausing.PauseWish | None = None
    with suppress(InvalidFile, Unsettled):  # it is kept aside when pause.yaml is filled in
        wanted = pausing.wish(store, moment, BRIEF)
        if wanted is not None and wanted.file is not None and not wanted.is_overruling:
            request = lease.pause_request(wanted.file, wanted.by)
    pause = moment.pause
    if pause is None or (request.mode != pause.mode and request.mode != "drain"):
        journal.add(request)
    journal.add(Forced(under_way=_under_way(moment), waited=waited))
    journal.flush()
    if request.mode == "cancel" and not pausing.may_have_to_undo(moment):
        pausing.close_cancelled(workspace, wanted, request.reason)
        return
    pausing.settle(workspace, forced=True)
    workspace.close("paused", moment.reason)


def _under_way(moment: Moment) -> tuple[str, ...]:
    """What was running according to the record, in words: effects that may have happened, and cut-off scopes."""
    found = []
    for path, agent in moment.agents.items():
        of = f" of {path}" if path else ""
        for key, scope in agent.scopes.items():
            found += [f"{started.step}{started.call}{of}" for started in scope.started.values()]
            found += [f"{scope.title!r}{of}"] if key != ROOT else []
    return tuple(found)
