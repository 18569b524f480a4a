"""What is put right in a workspace when its process was killed."""

from __future__ import annotations

import time
from contextlib import suppress

from ...workspace import pausing
from ...workspace.agentmoment import ROOT
from ...workspace.errors import InvalidFile, LeaseHeld, SatchelError
from ...workspace.looking import look
from ...workspace.moment import Moment
from ...workspace.opening import Workspace, opened
from ...workspace.record import Forced, PauseRequested
from ...workspace.report import Report
from ...workspace.store import Store

_PATIENCE = 2.0  # seconds until the lock of a process that was killed must be free


def after_kill(store: Store, request: PauseRequested, waited: float) -> SatchelError | None:
    """Bring the files to one moment after a forced stop, and let them say what it was. `request` is the pause that the
    process may not have come to record, `waited` how many seconds it had for it. Returns what prevented it, if anything
    did."""
    give_up = time.monotonic() + _PATIENCE
    while True:
        try:
            store.refresh()
            if not look(store).moment.clean:
                with opened(store, "pause", Report()) as workspace:
                    _describe(workspace, request, waited)
            return None
        except LeaseHeld as error:
            if time.monotonic() > give_up:
                return error
            time.sleep(0.02)
        except SatchelError as error:
            return error


def _describe(workspace: Workspace, request: PauseRequested, waited: float) -> None:
    moment, journal = workspace.moment, workspace.journal
    if workspace.was_finished:
        workspace.close()
        return
    with suppress(InvalidFile):  # it is kept aside when pause.yaml is filled in
        wanted = pausing.wish(workspace.store, moment)
        if wanted is not None and wanted.file is not None and not wanted.is_overruling:
            request = wanted.file.request(wanted.by)
    if moment.pause is None or (request.mode == "emergency" and moment.pause.mode != "emergency"):
        journal.add(request)
    journal.add(Forced(under_way=_under_way(moment), waited=waited))
    journal.flush()
    pausing.settle(workspace, forced=True)
    workspace.close("paused", moment.reason)


def _under_way(moment: Moment) -> tuple[str, ...]:
    """What of it is on record, in words: effects that may have happened, and the scopes that were cut off."""
    found = []
    for path, agent in moment.agents.items():
        of = f" of {path}" if path else ""
        for key, scope in agent.scopes.items():
            found += [f"{started.step}{started.call}{of}" for started in scope.started.values()]
            found += [f"{scope.title!r}{of}"] if key != ROOT else []
    return tuple(found)
