"""Decide from one look at a workspace whether a start calls the agent. Changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from ...workspace.base import Refused
from ...workspace.inbound.approvals import nothing_has_come
from ...workspace.inbound.edits import Noticed, notice
from ...workspace.inbound.inbox import inbox
from ...workspace.inspect import Look, Report
from ...workspace.journal.records import PauseRequested
from ...workspace.lifecycle import PauseWish, Point, pausing, recovery, rewind_record
from ...workspace.store import DISPLACED, Store
from ...workspace.views import BRIEF
from ..limits import budget, limits, windows
from . import preflight
from .start import Start, arguments_to_record


class Leave(Struct, frozen=True):
    """The run stays as it is."""

    refused: Report | None = None  # it waits for answers; why given answers were not taken
    noticed: Noticed | None = None  # in its files, if they were looked at


class Stay(Struct, frozen=True):
    """The run is paused, or must be paused now; then the files are completed."""

    wanted: PauseWish
    request: PauseRequested | None = None  # a request that is not in the files
    arguments: bytes | None = None  # to record; see `given.to_record`


class NothingToDo(Struct, frozen=True):
    """The run has completed, and an opening would find nothing to do and nothing to repair."""


class Go(Struct, frozen=True):
    """Call the agent, unless the opening finds that nothing is left to do."""

    wanted: PauseWish | None  # the pause that is over with this start
    is_unclean: bool  # the run was stopped by force
    is_overruling: bool  # windows that are open do not count
    found: preflight.Findings
    point: Point | None  # the checkpoint that it goes back to first
    arguments: bytes | None = None  # to record; see `given.to_record`


def decide(start: Start, seen: Look) -> Leave | Stay | NothingToDo | Go:
    """The decision. Raises Refused, or the error of a file, if the run must not continue."""
    store, moment = start.store, seen.moment
    arguments = arguments_to_record(start, seen) if start.args or start.input is not None else None
    if moment.status == "cancelled" or (not start.wake and _sleeps(seen)):
        return Leave()
    limits.check(store, seen.definition)
    wanted = pausing.wish(store, moment)
    is_called_back = start.wake or (wanted is not None and wanted.is_overruling)
    if moment.is_replay and not is_called_back and (wanted is None or wanted.mode != "cancel"):
        return Leave() if wanted is None or wanted.in_force else Stay(wanted)
    if wanted is not None and wanted.mode != "cancel":
        if wanted.in_force or start.wake:
            budget.check(seen.definition.budget, moment)
        if wanted.is_missing or not (start.wake or wanted.is_lifted):
            return Stay(wanted, arguments=arguments)
    if wanted is not None:
        pausing.check_may_go_on(wanted)
    elif (moment.asks_whether_back or not start.wake) and (waits := _unanswered(store, seen)) is not None:
        return waits
    elif _is_done(start, seen):
        return NothingToDo()
    if not is_called_back and (window := _window(seen)) is not None:
        return Stay(wanted or PauseWish(), window, arguments)
    is_unclean = moment.unclean or (wanted is not None and wanted.mode == "emergency")
    stop: preflight.Stop = "unclean" if is_unclean else "pause" if wanted is not None and wanted.in_force else ""
    found = preflight.check(start, seen, stop=stop)
    arguments = arguments or arguments_to_record(start, seen)
    if found.drift and seen.definition.on_drift == "ask" and not (start.wake or start.accept_drift):
        asked = f"changed since the last start, resume to continue: {'; '.join(found.drift)}"
        return Stay(wanted or PauseWish(), PauseRequested(reason=asked, by="satchel"), arguments)
    point = _point(store, seen) if start.from_checkpoint else None
    return Go(wanted, is_unclean, is_called_back, found, point, arguments)


def _sleeps(seen: Look) -> bool:
    """Whether it sleeps and its time has not come."""
    moment = seen.moment
    return moment.status == "sleeping" and moment.clean and datetime.fromisoformat(moment.until) > datetime.now(UTC)


def _unanswered(store: Store, seen: Look) -> Leave | None:
    """For a run that only waits for answers of people. None if a start may find more: a person has answered or edited,
    or an effect in doubt can be verified, unless it is asked whether the run shall go back."""
    moment = seen.moment
    if not moment.clean or moment.new_answers:
        return None
    if not moment.asks_whether_back:
        if moment.status != "waiting" or not (moment.doubts or moment.approvals):
            return None
        if not all(doubt.needs_person for doubt in moment.doubts.values()):
            return None
    refused = nothing_has_come(store, moment, datetime.now(UTC))
    if refused is None or (noticed := notice(store, moment, seen.definition, patience=BRIEF)).is_anything:
        return None
    report = Report()
    for text in refused:
        report.add("wanted", text)
    return Leave(report, noticed)


def _is_done(start: Start, seen: Look) -> bool:
    """Whether it has completed and an opening would find nothing to do and nothing to repair. Then it is not opened:
    starts that do nothing must not make the journal longer."""
    store, moment = start.store, seen.moment
    if start.from_checkpoint or moment.asks_whether_back or not moment.is_finished:
        return False
    if moment.url != store.url or inbox.has_work(store, moment):
        return False
    if next(iter(store.list(DISPLACED)), None) is not None:
        return False  # there may be a save
    noticed = notice(store, moment, seen.definition, patience=BRIEF)
    return not noticed.is_anything and recovery.is_whole(store, seen, noticed)


def _window(seen: Look) -> PauseRequested | None:
    """The pause for an open window, if the run would do something in it."""
    if seen.moment.is_finished:
        return None
    opened = windows.current(seen.definition.windows, limits.utc_now())
    if opened is None or windows.is_overruled(opened, seen.moment):
        return None
    return limits.pause_for(opened)


def _point(store: Store, seen: Look) -> Point:
    point = rewind_record.last_good(store, seen.moment)
    if point is None or seen.moment.is_finished:
        why = "it has completed" if seen.moment.is_finished else "there is no earlier valid checkpoint"
        raise Refused(
            "can't go back to a known-good checkpoint",
            path=store.url,
            why=why,
            remedy="resume without `--from-checkpoint` (`from_checkpoint` in Python)",
        )
    return point
