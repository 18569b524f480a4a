"""Runs an agent over a workspace in this process, from opening to stop."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ...workspace.base import Conflicting, InvalidFile, LeaseHeld, Refused, SatchelError
from ...workspace.inspect import Look, Report, define, look
from ...workspace.journal.records import ApprovalAsked, Doubt, Edited, EndStatus, PauseRequested
from ...workspace.lifecycle import Point, Wish, completeness, heartbeat, opening, pausing, rewind
from ...workspace.people import saving
from ...workspace.people.approvals import nothing_has_come
from ...workspace.people.edits import notice
from ...workspace.people.inbox import inbox
from ...workspace.state import Moment
from ...workspace.store import DISPLACED, Store, open_store
from ...workspace.views import BRIEF
from ..agent import Agent, check_migrated, describe, load
from ..engine import Context, Interruption, Watch, uplink
from ..limits import Announcer, budget, limits, windows
from ..steps import Codec
from . import drift, preflight
from .attempt import Entering
from .idling import resumes
from .start import Start, check_no_loop


@dataclass(slots=True)
class Outcome:
    """How a run stopped, and what it did not have to do again."""

    status: EndStatus
    report: Report
    result: Any = None
    error: BaseException | None = None
    doubts: list[Doubt] = field(default_factory=list)  # what a person is asked about effects
    approvals: list[ApprovalAsked] = field(default_factory=list)  # and by the agent
    answered: int = 0  # calls that were answered from the record
    recovered: int = 0  # characters of streamed answers that were continued
    skipped: int = 0  # items that were finished before
    open_items: int = 0
    noticed: list[str] = field(default_factory=list)  # edits that came while it was running
    until: str = ""  # when a sleeping run is to wake: UTC, ISO 8601
    entered: bool = True  # the agent was called; if not, it had stopped before, and stays so
    late: frozenset[str] = frozenset()  # what has come after the last looks of a run that has completed


def run(
    workspace: str | os.PathLike[str] | Store, agent: Agent | None = None, *, watch: Watch | None = None,
    wake: bool = False, accept_drift: bool = False, drain_timeout: float | None = None,
    from_checkpoint: bool = False, take_over: bool = False, adopt: bool = False,
) -> Outcome:  # fmt: skip
    """Run the agent of a workspace until it completes, fails, or needs a person. Continues where it stopped.

    `workspace` is a folder, or a store. `agent` takes the place of the one that workspace.yaml names. One that sleeps,
    was paused, or waits for answers that nobody has given is left alone, and its outcome is what it was, unless
    `wake` is given. With `accept_drift` it goes on although code, settings, prompts, packages or models have changed
    and workspace.yaml says to refuse that, and although a reference is gone. Errors of the agent are in the outcome; a
    workspace that can't be opened raises a SatchelError, and so does a failing disk. `drain_timeout` is how many
    seconds a stop waits for what is under way, in place of what workspace.yaml says. With `from_checkpoint` the run
    goes back to the last known-good checkpoint first; effects and answers since then are kept. Where no lock tells
    whether the process that had the workspace still lives, this waits for its time-to-live, half a minute, unless
    `take_over` is given. With `adopt` it goes on although it may be a copy of a run that lives elsewhere.
    """

    check_no_loop()

    async def with_signals() -> Outcome:
        interruption = Interruption()
        with interruption.watched(), uplink.beating():
            start = Start(
                _store(workspace), agent, watch, interruption, wake, accept_drift, drain_timeout, from_checkpoint,
                take_over, adopt,
            )  # fmt: skip
            return await _run(start)

    return asyncio.run(with_signals())


async def run_async(
    workspace: str | os.PathLike[str] | Store, agent: Agent | None = None, *, watch: Watch | None = None,
    wake: bool = False, accept_drift: bool = False, drain_timeout: float | None = None,
    from_checkpoint: bool = False, take_over: bool = False, adopt: bool = False,
) -> Outcome:  # fmt: skip
    """`run`, in a loop that is running already, whose owner handles signals. If the task is cancelled, the run is left
    paused, with everything written, and the cancellation goes on."""
    start = Start(
        _store(workspace), agent, watch, Interruption(), wake, accept_drift, drain_timeout, from_checkpoint, take_over,
        adopt,
    )  # fmt: skip
    return await _run(start)


def _store(workspace: str | os.PathLike[str] | Store) -> Store:
    return open_store(os.fspath(workspace)) if isinstance(workspace, str | os.PathLike) else workspace


async def _run(start: Start) -> Outcome:
    outcome = await _run_once(start)
    known: set[str] = set()
    while outcome.entered:
        start = replace(start, wake=False, from_checkpoint=False, take_over=False, adopt=False)
        following: Outcome | None = None
        if outcome.late - known and not start.interruption.count:
            known |= outcome.late  # once for each: a task may never be looked for, or never hold still
            following = await _take_late(start, outcome)
        elif outcome.status == "paused" and await resumes(start.store, start.interruption, start.watch):
            with suppress(Conflicting):  # else it stays paused until a person has settled that
                following = await _run_once(start)
        if following is None:
            break
        following.noticed[:0] = outcome.noticed
        outcome = following
    return outcome


async def _take_late(start: Start, completed: Outcome) -> Outcome | None:
    """Open a completed run again for what has come meanwhile. None if that gives it no work. Conflicting if it
    contradicts the run."""
    try:
        outcome = await _run_once(start)
    except LeaseHeld:
        return None  # another process takes it
    except (Refused, InvalidFile) as error:  # it is kept, and the file restored
        completed.noticed.append(str(error))
        if start.watch:
            start.watch.noticed("refused", str(error))
        return None
    return None if outcome.status == "completed" and not outcome.entered else outcome


async def _run_once(start: Start) -> Outcome:
    """Until the run stops, whatever for."""
    store = start.store
    await _until_saved(start)
    seen = look(store)
    if seen.moment.status == "cancelled":
        return await _left_whole(start, seen)
    if not start.wake and _sleeps(seen):
        return await _left_whole(start, seen)
    windows.check(store, seen.definition)
    wanted = pausing.wish(store, seen.moment)
    if wanted is not None and wanted.mode != "cancel" and (wanted.in_force or start.wake):
        budget.check(seen.definition.budget, seen.moment)
    if wanted is not None and wanted.mode != "cancel" and (wanted.is_missing or not (start.wake or wanted.is_lifted)):
        return await _stay(start, seen, wanted)
    if not start.wake and wanted is None and (refused := _unanswered(store, seen)) is not None:
        return await _left_whole(start, seen, refused, is_waiting=True)
    if wanted is None and _is_done(start, seen):
        report = Report()
        report.found(seen)
        if seen.definition.recheck == "always":
            preflight.ask_about(report, preflight.changed_outputs(store, seen))
        if start.watch and report.has("wanted"):
            start.watch.opened(report)
        return Outcome("completed", report, skipped=seen.moment.root.plan.progress.leaves, entered=False)
    if wanted is not None:
        pausing.check_may_go_on(wanted)
    is_overruled = start.wake or (wanted is not None and wanted.is_overruling)
    if not is_overruled and (opened_window := _window(seen)) is not None:
        return await _stay(start, seen, wanted or Wish(), opened_window)
    is_unclean = seen.moment.unclean or (wanted is not None and wanted.mode == "emergency")
    stop: preflight.Stop = "unclean" if is_unclean else "pause" if wanted is not None and wanted.in_force else ""
    found = preflight.check(store, seen, start.agent, accepts=start.accept_drift, stop=stop)
    point = _point(store, seen) if start.from_checkpoint else None
    if not await _is_free(start):
        return _left(seen)
    report = Report()

    def end_pause(opened: opening.Workspace) -> None:
        if wanted is not None and not opened.was_finished and not found.is_refused:
            pausing.add_end(opened, wanted, "satchel resume" if start.wake else "", found.says)

    with opening.opened(
        store, "run", report, seen=seen, check_data=_check_data(start, seen.moment), take_over=True, adopt=start.adopt,
        add_more=end_pause, reaches_out=True,
    ) as opened:  # fmt: skip
        if opened.was_finished:
            if wanted is not None:
                pausing.lift(opened, wanted, "its end")
            preflight.ask_about(report, found.complaints)
            if start.watch and (report.has("edited") or found.complaints):
                start.watch.opened(report)
            pausing.clear_lifted(opened)  # a power failure may have brought it back
            opened.close()
            return Outcome("completed", report, skipped=opened.moment.root.plan.progress.leaves, entered=False)
        if found.is_refused:
            opened.close("paused", "on_drift is refuse, and what it works with has changed")
            drift.refuse(found.drift)
        announcer = Announcer(opened, start.watch)
        if wanted is not None:
            pausing.clear(opened, wanted)
        if point is not None:
            _go_back(opened, point)
        elif opened.has_edits and not is_unclean:
            opened.checkpoint("edit")  # going back must not undo what a person has changed
        found.tell(opened, is_offered=point is None)
        if start.watch:
            start.watch.opened(report)
        try:
            root = start.agent or load(store, opened.definition.agent)
        except SatchelError:
            pausing.clear_lifted(opened)
            opened.close()
            raise
        except Exception as error:
            pausing.clear_lifted(opened)
            opened.close("failed", "the agent's code can't be imported", describe(error, store.url))
            announcer.ended("failed")
            await announcer.finish()
            return Outcome("failed", report, error=error)
        context = Context(opened, start.interruption, start.watch, announcer)
        context.check_data = _check_data(start, opened.moment)
        context.rechecks, context.code = found.rechecks, found.code
        context.cut_off_by = "a forced stop" if is_unclean else "a crash"
        if is_overruled:
            context.limits.overrule()
        ended = await Entering(context, root, start.drain_timeout, accepts_drift=start.accept_drift).run()
    await announcer.finish()
    moment = opened.moment
    progress = moment.root.plan.progress
    assert ended.status != "edited"
    return Outcome(
        ended.status, report, ended.result, ended.error, list(moment.doubts.values()), list(moment.approvals.values()),
        context.answered, context.recovered, ended.skipped, progress.leaves - progress.settled,
        context.noticed, ended.until, late=ended.late,
    )  # fmt: skip


async def _until_saved(start: Start) -> None:
    """Wait for people who are in the middle of saving a file, or for a signal."""
    told: set[str] = set()
    for pause, path in saving.until_saved(start.store):
        if start.watch and path not in told:
            start.watch.noticed("waiting", saving.said(path))
        told.add(path)
        await asyncio.sleep(pause)
        if start.interruption.count:
            return


async def _is_free(start: Start) -> bool:
    """Wait until the workspace may be taken; LeaseHeld if it is not. False if a signal came meanwhile."""
    if start.take_over:
        return True
    is_told = False
    for pause, held in heartbeat.until_free(start.store):
        if start.watch and not is_told:
            start.watch.noticed(
                "waiting", f"{held.process} has it, and may have died: looking for "
                f"{held.ttl:.0f} s whether it still beats"
            )  # fmt: skip
            is_told = True
        await asyncio.sleep(pause)
        if start.interruption.count:
            return False
    return True


def _point(store: Store, seen: Look) -> Point:
    point = rewind.last_good(store, seen.moment)
    if point is None or seen.moment.is_finished:
        why = "it has completed" if seen.moment.is_finished else "there is no earlier one that is whole"
        raise Refused("can't go back to a known-good checkpoint", path=store.url, why=why,
                      remedy="leave out --from-checkpoint")  # fmt: skip
    return point


def _go_back(opened: opening.Workspace, point: Point) -> None:
    for record in rewind.records(opened.store, opened.moment, point, "satchel resume --from-checkpoint"):
        opened.journal.add(record)
        if isinstance(record, Edited):
            for say in record.says:
                opened.report.add("edited", f"{record.file}: {say}")
    opened.journal.flush()
    opened.report.add("done", f"went back to {point.path}; effects and answers since then are kept")
    opened.mark_all()
    opened.save_report()


def _check_data(start: Start, moment: Moment) -> Any:
    def check(path: str, data: Any) -> None:
        """Of a sub-agent the type is known only when it is spawned."""
        if path:
            return
        try:
            agent = start.agent or load(start.store, define(start.store).agent)
        except Exception:
            return  # told when it is to be run
        recorded = moment.root
        version = recorded.data_version if recorded.has_data else agent.version
        check_migrated(data, version, agent.migrations, Codec(agent.state, "the state"))

    return check


async def _stay(start: Start, seen: Look, wanted: Wish, request: PauseRequested | None = None) -> Outcome:
    """The run is not to go on: nothing of the agent is called. What the files do not say of that yet, they do then.
    `request` is a wish that is not in the files."""
    report = Report()
    if wanted.in_force and not wanted.is_missing and request is None:
        return await _left_whole(start, seen)
    with opening.opened(start.store, "pause", report, reaches_out=True) as opened:
        if opened.was_finished and request is None:  # nothing is left that could be paused
            if wanted.mode == "drain":
                pausing.lift(opened, wanted, "its end")
            opened.close()
            return Outcome("completed", report, skipped=opened.moment.root.plan.progress.leaves, entered=False)
        pausing.stop(opened, wanted, request)
        if start.watch:
            start.watch.opened(report)
        opened.close(None if wanted.in_force and request is None else "paused", opened.moment.reason)
        announcer = Announcer(opened, start.watch)
        announcer.ended("paused")
    await announcer.finish()
    return _left(seen, report)


def _window(seen: Look) -> PauseRequested | None:
    """The pause for a window that is open, if the run would do something in it."""
    if seen.moment.is_finished:
        return None
    opened = windows.current(seen.definition.windows, limits.utc_now())
    if opened is None or windows.is_overruled(opened, seen.moment):
        return None
    return limits.pause_for(opened)


def _sleeps(seen: Look) -> bool:
    """It sleeps, and its time has not come."""
    moment = seen.moment
    return moment.status == "sleeping" and moment.clean and datetime.fromisoformat(moment.until) > datetime.now(UTC)


def _is_done(start: Start, seen: Look) -> bool:
    """Whether it has completed, and an opening would find nothing to do and nothing to repair. Then it is not opened:
    starts that do nothing must not make the journal longer."""
    store, moment = start.store, seen.moment
    if start.from_checkpoint or not moment.is_finished or moment.url != store.url or inbox.has_work(store, moment):
        return False
    if next(iter(store.list(DISPLACED)), None) is not None:
        return False  # a save may lie there
    return not notice(store, moment, seen.definition, patience=BRIEF).is_anything and completeness.is_whole(store, seen)


async def _left_whole(start: Start, seen: Look, report: Report | None = None, *, is_waiting: bool = False) -> Outcome:
    """As `_left`; what a kill has left undone when the run last stopped is done first."""
    report = report or Report()
    if not completeness.is_whole(start.store, seen) and await _is_free(start):
        once = opening.opened(start.store, "recover", report, adopt=start.adopt, reaches_out=True)
        with suppress(LeaseHeld), once as opened:
            pause = opened.moment.pause
            if pause is not None and pause.paused_at:
                pausing.restore(start.store, opened.moment)
            opened.close()
        seen = look(start.store)
    return _left(seen, report, is_waiting=is_waiting)


def _left(seen: Look, report: Report | None = None, *, is_waiting: bool = False) -> Outcome:
    """What there is to say of a run that was not gone on with."""
    moment = seen.moment
    settled, leaves = moment.root.plan.progress
    status = "waiting" if is_waiting else moment.status if moment.status in ("sleeping", "cancelled") else "paused"
    return Outcome(
        status, report or Report(), doubts=list(moment.doubts.values()), approvals=list(moment.approvals.values()),
        skipped=settled, open_items=leaves - settled, until=moment.until, entered=False,
    )  # fmt: skip


def _unanswered(store: Store, seen: Look) -> Report | None:
    """Of a run that only waits for answers that no person has given: why those that were given were not taken.
    None if a start may find out more: a person has answered or edited, or an effect in doubt can be verified."""
    moment = seen.moment
    if moment.status != "waiting" or not moment.clean or not (moment.doubts or moment.approvals):
        return None
    if not all(doubt.needs_person for doubt in moment.doubts.values()):
        return None
    refused = nothing_has_come(store, moment, datetime.now(UTC))
    if refused is None or notice(store, moment, seen.definition, patience=BRIEF).is_anything:
        return None
    report = Report()
    for text in refused:
        report.add("wanted", text)
    return report
