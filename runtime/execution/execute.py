"""Open a workspace, call its agent, and bring it to its stop."""

from __future__ import annotations

from ...workspace.base import SatchelError, myself
from ...workspace.inspect import Look, Report
from ...workspace.lifecycle import Point, Workspace, opening, pausing, rewind
from ...workspace.secrets import scrub
from ..agent import Agent, describe, load
from ..engine import Context, Doubts, Stopping
from ..limits import Announcer
from . import drift, given, leaving, preflight
from .aside import aside, held_aside
from .attempt import Ended, Entering
from .decision import Go
from .outcome import After, Outcome
from .start import Start
from .state_check import StateCheck, check_recorded


async def execute(start: Start, seen: Look, go: Go) -> After:
    """An error of the agent is in the outcome. Outdated if another process has paused or ended the run since."""
    store, report = start.store, Report()

    def begin(opened: Workspace) -> None:
        given.record(opened, go.arguments)
        if go.wanted is not None and not opened.was_finished and not go.found.is_refused:
            pausing.add_end(opened, go.wanted, myself() if start.wake else "", go.found.says)

    entering = opening.opened(
        store,
        "replay" if start.only else "run",
        report,
        seen=seen,
        check_data=StateCheck(start, seen.moment),
        take_over=True,
        adopt=start.adopt,
        add_more=begin,
        reaches_out=True,
        in_thread=start.shares_loop,
        is_decided=True,
    )
    async with held_aside(start, entering) as opened:
        if opened.moment.asks_whether_back:
            return await _waits_for_an_answer(start, opened, go)
        if opened.was_finished:
            return _nothing_to_do(start, opened, go)
        if go.found.is_refused:
            opened.close("paused", "`on_drift: refuse` is set, and the code or settings have changed")
            drift.refuse(go.found.drift)
        announcer = Announcer(opened, start.watch, is_silent=start.only is not None or start.rehearsal is not None)
        await aside(start, lambda: _prepare(opened, go))
        if start.watch:
            start.watch.opened(report)
        try:
            root = await aside(start, lambda: _agent(start, seen, go, opened))
        except SatchelError as error:
            pausing.clear_lifted(opened)
            report.add("wanted", f"the agent was not called: {error}")
            opened.save_report()
            opened.close()
            raise
        except Exception as error:
            scrub(error, opened.redactor)
            pausing.clear_lifted(opened)
            opened.close("failed", "the agent's code can't be imported", describe(error, store.url))
            announcer.ended("failed")
            await announcer.finish()
            return After(Outcome("failed", report, error=error), opened.moment)
        ended = await _entered(start, opened, go, root, announcer).run()
    await announcer.finish()
    return After(_outcome(opened, ended), opened.moment)


async def _waits_for_an_answer(start: Start, opened: Workspace, go: Go) -> After:
    """The agent is not entered before a person has said whether the run shall go back."""
    if start.watch:
        start.watch.opened(opened.report)
    if go.wanted is not None:
        pausing.clear(opened, go.wanted)
    announcer = Announcer(opened, start.watch)
    await aside(start, lambda: opened.close("waiting", "files of a checkpoint were copied over those of the run"))
    announcer.ended("waiting")
    await announcer.finish()
    return leaving.left(opened.moment, opened.report, is_waiting=True)


def _nothing_to_do(start: Start, opened: Workspace, go: Go) -> After:
    """The run had completed, and no later edit gives it work."""
    report, complaints = opened.report, go.found.complaints
    if go.wanted is not None:
        pausing.lift(opened, go.wanted, "the end of the run")
    preflight.ask_about(report, complaints)
    if start.watch and (report.has("edited") or complaints):
        start.watch.opened(report)
    pausing.clear_lifted(opened)  # a power failure may have brought it back
    opened.close()
    return leaving.completed(start, opened, report)


def _prepare(opened: Workspace, go: Go) -> None:
    """Before the agent is loaded: the pause is over, and the run returns to a checkpoint if that is requested."""
    if go.wanted is not None:
        pausing.clear(opened, go.wanted)
    if go.point is not None:
        _go_back(opened, go.point)
    elif opened.has_edits and not go.is_unclean:
        opened.checkpoint("edit")  # going back must not undo what a person has changed
    go.found.tell(opened, is_offered=go.point is None)


def _agent(start: Start, seen: Look, go: Go, opened: Workspace) -> Agent:
    """The agent. Refused if its code can't read, or would lose, what the opening has changed since that was checked."""
    agent = start.agent or load(start.store, opened.definition.agent)
    if not go.found.fits or opened.has_edits or opened.moment is not seen.moment:
        check_recorded(start.store, agent, opened.moment)
    return agent


def _entered(start: Start, opened: Workspace, go: Go, root: Agent, announcer: Announcer) -> Entering:
    stopping = Stopping(opened, start.interruption)
    doubts = Doubts(opened, stopping, go.found.rechecks, "a forced stop" if go.is_unclean else "a crash")
    context = Context(opened, stopping, doubts, announcer, start.watch, start.tap, start.only, start.rehearsal)
    if start.restarts:
        context.limits.restart_with(stopping.restart)
    if go.is_overruling:
        context.limits.overrule()
    return Entering(start, context, root, go.found.code)


def _outcome(opened: Workspace, ended: Ended) -> Outcome:
    moment, tally = opened.moment, ended.context.tally
    progress = moment.root.plan.progress
    suspension = ended.context.stopping.suspension
    assert ended.status != "edited"
    return Outcome(
        ended.status,
        opened.report,
        ended.returned.value if ended.returned else None,
        ended.error,
        list(moment.doubts.values()),
        list(moment.approvals.values()),
        tally.answered,
        tally.recovered,
        ended.skipped,
        progress.leaves - progress.settled,
        tally.noticed,
        ended.until,
        late=ended.late,
        restarts=ended.status == "sleeping" and suspension is not None and suspension.restarts,
    )


def _go_back(opened: Workspace, point: Point) -> None:
    back = rewind.plan(opened.moment, point.moment, myself(), file=point.path)
    back.add(opened.store, opened.journal)
    for say in back.record.says:
        opened.report.add("edited", say)
    opened.journal.flush()
    opened.report.add("done", f"went back to {point.path}; effects and answers since then are kept")
    opened.mark_all()
    opened.save_report()
