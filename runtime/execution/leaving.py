"""Starts that call no agent: what they repair, and what they report."""

from __future__ import annotations

from contextlib import suppress

from ...workspace.base import LeaseHeld
from ...workspace.inspect import Look, Report, look
from ...workspace.lifecycle import Workspace, completeness, opening, pausing
from ..limits import Announcer
from . import preflight
from .decision import Stay
from .outcome import Outcome
from .start import Start
from .waiting import is_free


async def leave(start: Start, seen: Look, refused: Report | None = None) -> Outcome:
    """First does what a kill has left undone when the run last stopped. `refused`: see `decision.Leave`."""
    report = refused or Report()
    if not completeness.is_whole(start.store, seen) and await is_free(start):
        once = opening.opened(start.store, "recover", report, adopt=start.adopt, reaches_out=True)
        with suppress(LeaseHeld), once as opened:
            pause = opened.moment.pause
            if pause is not None and pause.paused_at:
                pausing.restore(start.store, opened.moment)
            opened.close()
        seen = look(start.store)
    return left(seen, report, is_waiting=refused is not None)


async def stay(start: Start, seen: Look, stays: Stay) -> Outcome:
    """Complete the files of a paused run."""
    wanted, request = stays.wanted, stays.request
    if wanted.in_force and not wanted.is_missing and request is None:
        return await leave(start, seen)
    report = Report()
    with opening.opened(start.store, "pause", report, reaches_out=True) as opened:
        if opened.was_finished and request is None:  # nothing is left that could be paused
            if wanted.mode == "drain":
                pausing.lift(opened, wanted, "the end of the run")
            opened.close()
            return completed(opened, report)
        pausing.stop(opened, wanted, request)
        if start.watch:
            start.watch.opened(report)
        opened.close(None if wanted.in_force and request is None else "paused", opened.moment.reason)
        announcer = Announcer(opened, start.watch)
        announcer.ended("paused")
    await announcer.finish()
    return left(seen, report)


def done(start: Start, seen: Look) -> Outcome:
    """Nothing is opened: starts that do nothing must not make the journal longer."""
    report = Report()
    report.found(seen)
    if seen.definition.recheck == "always":
        preflight.ask_about(report, preflight.changed_outputs(start.store, seen))
    if start.watch and report.has("wanted"):
        start.watch.opened(report)
    return completed(seen, report)


def completed(of: Workspace | Look, report: Report) -> Outcome:
    """The outcome of a run that had completed before."""
    return Outcome("completed", report, skipped=of.moment.root.plan.progress.leaves, entered=False)


def left(seen: Look, report: Report | None = None, *, is_waiting: bool = False) -> Outcome:
    """The outcome of a run that has not completed and was not resumed."""
    moment = seen.moment
    settled, leaves = moment.root.plan.progress
    status = "waiting" if is_waiting else moment.status if moment.status in ("sleeping", "cancelled") else "paused"
    return Outcome(
        status, report or Report(), doubts=list(moment.doubts.values()), approvals=list(moment.approvals.values()),
        skipped=settled, open_items=leaves - settled, until=moment.until, entered=False,
    )  # fmt: skip
