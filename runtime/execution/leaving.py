"""Starts that call no agent: what they wait for, what they repair, and what they report."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from ...workspace.base import LeaseHeld, UsageError
from ...workspace.formats import pause_file
from ...workspace.inbound import open_files
from ...workspace.inspect import Look, Report, look
from ...workspace.journal import blobs
from ...workspace.journal.records import EndStatus
from ...workspace.lifecycle import Workspace, acquire, opening, pausing, recovery
from ...workspace.state import Moment
from ..agent import load
from ..limits import Announcer
from ..steps import ANY, result_codec
from . import preflight
from .decision import Leave, Stay
from .outcome import After, Outcome
from .start import Start, record_arguments


async def until_saved(start: Start) -> None:
    """Wait until people have finished saving files, or for a signal."""
    told: set[str] = set()
    looks = open_files.until_saved(start.store)
    while (found := await start.aside(lambda: next(looks, None))) is not None:
        pause, path = found
        if start.watch and path not in told:
            start.watch.noticed("waiting", open_files.said(path))
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
    once = opening.opened(start.store, "recover", report, seen=seen, adopt=start.adopt, reaches_out=True)
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
    opens = opening.opened(start.store, "pause", report, seen=seen, reaches_out=True, is_decided=True)
    async with start.held_aside(opens) as opened:
        if opened.was_finished and request is None:  # nothing is left that could be paused
            if wanted.mode == "drain":
                pausing.lift(opened, wanted, "the end of the run")
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
    await announcer.finish()
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
        with opening.opened(start.store, "pause", Report(), seen=seen, reaches_out=True) as opened:
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
