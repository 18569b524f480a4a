"""Decide from one look at a workspace whether a start calls the agent, which changes nothing; and do what a start does
that calls none: what it waits for, what it repairs, and what it reports.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from ...workspace.base import LeaseHeld, Refused, UsageError
from ...workspace.formats import pause_file
from ...workspace.inbound import Noticed, Point, detection, inbox, nothing_has_come, notice, rewind_record
from ...workspace.inspect import Look, Report, look, transfer_file
from ...workspace.journal import EndStatus, PauseRequested, blobs
from ...workspace.lifecycle import PauseWish, Workspace, acquire, opening, pausing, recovery
from ...workspace.state import Moment
from ...workspace.store import DISPLACED, Store
from ...workspace.views import BRIEF
from ..agent import ANY, load, result_codec
from ..live import Announcer, limits, notices
from . import preflight
from .start import After, Outcome, Start, arguments_to_record, record_arguments


class Leave(Struct, frozen=True):
    """The run stays as it is."""

    refused: Report | None = None  # it waits for answers; why given answers were not taken
    noticed: Noticed | None = None  # in its files, if they were looked at


class Stay(Struct, frozen=True):
    """The run is paused, or must be paused now; then the files are completed."""

    wanted: PauseWish
    request: PauseRequested | None = None  # a request that is not in the files
    arguments: bytes | None = None  # to record; see `arguments_to_record`


class NothingToDo(Struct, frozen=True):
    """The run has completed, and an opening would find nothing to do and nothing to repair."""


class Go(Struct, frozen=True):
    """Call the agent, unless the opening finds that nothing is left to do."""

    wanted: PauseWish | None  # the pause that is over with this start
    is_unclean: bool  # the run was stopped by force
    is_overruling: bool  # windows that are open do not count
    found: preflight.Findings
    point: Point | None  # the checkpoint that it goes back to first
    arguments: bytes | None = None  # to record; see `arguments_to_record`


def decide(start: Start, seen: Look) -> Leave | Stay | NothingToDo | Go:
    """The decision. Raises Refused, or the error of a file, if the run must not continue."""
    store, moment = start.store, seen.moment
    transfer_file.refuse_backup(store)
    seen.check_has_agent(store.url)
    arguments = arguments_to_record(start, seen) if start.args or start.input is not None else None
    if moment.status == "cancelled" or (not start.wake and _sleeps(seen)):
        return Leave()
    notices.check(store, seen.definition)
    wanted = pausing.wish(store, moment)
    is_called_back = start.wake or (wanted is not None and wanted.is_overruling)
    if moment.is_replay and not is_called_back and (wanted is None or wanted.mode != "cancel"):
        return Leave() if wanted is None or wanted.in_force else Stay(wanted)
    if wanted is not None and wanted.mode != "cancel":
        if wanted.in_force or start.wake:
            limits.check_budget(seen.definition.budget, moment)
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
    opened = limits.current_window(seen.definition.windows, limits.utc_now())
    if opened is None or limits.is_overruled(opened, seen.moment):
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


async def until_saved(start: Start) -> None:
    """Wait until people have finished saving files, or for a signal."""
    told: set[str] = set()
    looks = detection.until_saved(start.store)
    while (found := await start.aside(lambda: next(looks, None))) is not None:
        pause, path = found
        if start.watch and path not in told:
            start.watch.noticed("waiting", detection.describe_saving(path))
        told.add(path)
        await asyncio.sleep(pause)
        if start.interruption.count:
            return


async def is_free(start: Start) -> bool:
    """Wait until the workspace may be taken; LeaseHeld if it may not. False if a signal came meanwhile."""
    if start.take_over:
        return True
    is_told = False
    for pause, held in acquire.until_free(start.store):
        if start.watch and not is_told:
            start.watch.noticed(
                "waiting",
                f"{held.process} has the run and may have died: waiting up to {held.ttl:.0f} s for its heartbeat",
            )
            is_told = True
        await asyncio.sleep(pause)
        if start.interruption.count:
            return False
    return True


async def leave(start: Start, seen: Look, leaves: Leave) -> After:
    """First does what a kill has left undone when the run last stopped."""
    report = leaves.refused or Report()
    is_whole = await start.aside(lambda: recovery.is_whole(start.store, seen, leaves.noticed))
    if not is_whole and await is_free(start):
        seen = await start.aside(lambda: _repaired(start, seen, report))
    return left(seen.moment, report, is_waiting=leaves.refused is not None)


def _repaired(start: Start, seen: Look, report: Report) -> Look:
    once = opening.opened(
        start.store, "recover", report, seen=seen, adopt=start.adopt, reaches_out=True, backs_up=start.backs_up
    )
    with suppress(LeaseHeld), once as opened:
        pause = opened.moment.pause
        if pause is not None and pause.paused_at:
            pausing.restore(start.store, opened.moment)
        opened.close()
    return look(start.store)


async def stay(start: Start, seen: Look, stays: Stay) -> After:
    """Complete the files of a paused run. Outdated if another process has ended the pause since."""
    wanted, changed = stays.wanted, pausing.amended(stays.wanted)
    request = stays.request or changed
    if stays.arguments is not None:
        seen = await _keep(start, seen, stays.arguments)
    if wanted.in_force and not wanted.is_missing and request is None:
        return await leave(start, seen, Leave())
    report = Report()
    opens = opening.opened(
        start.store, "pause", report, seen=seen, reaches_out=True, is_decided=True, backs_up=start.backs_up
    )
    async with start.held_aside(opens) as opened:
        if opened.was_finished and request is None:  # nothing is left that could be paused
            if wanted.mode == "drain":
                pausing.lift(opened, wanted)
            await start.aside(opened.close)
            return completed(start, opened, report)
        if changed is not None and stays.request is None:
            opened.report.add("edited", f"{pause_file.PATH}: the run is paused now: {pausing.said(changed)}")
        pausing.stop(opened, wanted, request)
        if start.watch:
            start.watch.opened(report)
        status: EndStatus | None = None if wanted.in_force and request is None else "paused"
        await start.aside(lambda: opened.close(status, opened.moment.reason))
        announcer = Announcer(opened, start.watch)
        announcer.ended("paused")
    await announcer.finish(start.rest)
    return left(opened.moment, report)


def done(start: Start, seen: Look) -> After:
    """Nothing is opened: starts that do nothing must not make the journal longer."""
    report = Report()
    report.found(seen)
    if seen.definition.recheck == "always":
        preflight.ask_about(report, preflight.changed_outputs(start.store, seen))
    if start.watch and report.has("wanted"):
        start.watch.opened(report)
    return completed(start, seen, report)


async def _keep(start: Start, seen: Look, arguments: bytes) -> Look:
    """Record the arguments of a run that is paused before it has begun: its next start may bring none."""
    if not await is_free(start):
        return seen

    def recorded() -> Look:
        backs_up = start.backs_up
        with opening.opened(start.store, "pause", Report(), seen=seen, reaches_out=True, backs_up=backs_up) as opened:
            record_arguments(opened, arguments)
            opened.close()
        return look(start.store)

    return await start.aside(recorded)


def completed(start: Start, of: Workspace | Look, report: Report) -> After:
    """The outcome of a run that had completed before."""
    result, settled = _result(start, of, report), of.moment.root.plan.progress.leaves
    return After(Outcome("completed", report, result, skipped=settled, entered=False), of.moment)


def _result(start: Start, of: Workspace | Look, report: Report) -> Any:
    """The recorded result, of the annotated type if the agent can be imported."""
    kept = of.moment.root.result
    if kept is None or not (kept.blob or len(kept.result)):
        return None
    data = blobs.fetch(start.store, kept)
    try:
        agent = start.agent or load(start.store, of.definition.agent)
        return result_codec(agent.function, "the agent").decode(data)
    except UsageError as error:
        report.add("found", f"{error}; it is returned as JSON")
    except Exception as error:
        report.add("found", f"the agent's code can't be imported, so its result is returned as JSON: {error}")
    return ANY.decode(data)


def left(moment: Moment, report: Report | None = None, *, is_waiting: bool = False) -> After:
    """The outcome of a run that has not completed and was not resumed."""
    settled, leaves = moment.root.plan.progress
    status = "waiting" if is_waiting else moment.status if moment.status in ("sleeping", "cancelled") else "paused"
    status = "paused" if moment.is_replay and status == "sleeping" else status
    outcome: Outcome = Outcome(
        status,
        report or Report(),
        doubts=list(moment.doubts.values()),
        approvals=list(moment.approvals.values()),
        skipped=settled,
        open_items=leaves - settled,
        until=moment.until,
        entered=False,
    )
    return After(outcome, moment)
