"""Withdraw the request to pause a run before it has stopped, so that its process continues."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Literal

from msgspec import Struct

from ...workspace.base import SIGNAL, Refused, SatchelError, UsageError
from ...workspace.formats import pause_file
from ...workspace.inspect import Lease, Look, lease, look_beside
from ...workspace.lifecycle import Wish, pausing
from ...workspace.state import EXIT_CODES, Status
from ...workspace.store import FileChanged
from ...workspace.views import BRIEF
from ..supervision.child import FORCE_AFTER
from .place import Place
from .waiting import Steps

_POLL = 0.1
_SOON = 3.0
"""Seconds in which a process notices it as a rule. Then a person is told who it is that is waited for."""
_MARGIN = 20.0
"""Seconds beyond its drain timeout that a process has to stop, and to start the run again."""
_GONE = 6.0
"""Seconds after which a process that has let go of the run does not take it again."""


_ENDED = EXIT_CODES.keys() - {"paused"}


class Withdrawn(Struct, frozen=True):
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


def withdraw(place: Place) -> Steps[Withdrawn]:
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
            _check(place, seen, wanted, holder)
        if is_written and moment.lifted != lifted:
            now_is = f"{holder.process} continues" if holder else f"the run is {moment.status} by now"
            return Withdrawn("withdrawn", f"the pause is withdrawn; {now_is}")
        if holder is None and is_written and (moment.status in _ENDED or now > gone_since + _GONE):
            status = "interrupted" if moment.is_interrupted else moment.status
            return Withdrawn(status, f"the run had stopped before: it is {status}")
        limit = definition.drain_timeout + FORCE_AFTER + _MARGIN if definition.drain_then == "force" else None
        if holder is not None and is_written and not is_told and now > began + _SOON:
            is_told = True
            place.tell(f"waiting for {holder.process} to notice it" + (f", at most {limit:.0f} s" if limit else ""))
        if holder is not None and limit is not None and now > began + limit:
            said = f"{holder.process} has not noticed it in {limit:.0f} s; `{place.command('stop')}` kills it"
            return Withdrawn("requested", said)
        if wanted is not None and not wanted.is_overruling and holder is not None:
            is_written |= _write(place, wanted)
        yield from place.look_again(_POLL)


def _check(place: Place, seen: Look, wanted: Wish | None, holder: Lease | None) -> None:
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


def _write(place: Place, wanted: Wish) -> bool:
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
