"""Run an agent over a workspace in this process, until it stops. One look at the workspace, which changes nothing,
decides whether a start calls the agent. A start that calls none waits, repairs, and reports.

After a short pause this process may resume the run. By then it is paused like any other: its files are closed, its
resources released, its lease given up. If a person types `satchel resume` meanwhile, that process takes it and this one
ends. A process that shares slots with others does not wait.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import Conflicting, InvalidFile, LeaseHeld, NewerFormat, Refused, SatchelError, arguments
from ...workspace.formats import pause_file
from ...workspace.inbound import Noticed, Point, detection, inbox, nothing_has_come, notice, rewind_record
from ...workspace.inspect import Look, Report, look, transfer_file
from ...workspace.journal import EndStatus, PauseRequested
from ...workspace.lifecycle import PauseWish, acquire, opening, pausing, recovery
from ...workspace.store import DISPLACED, Store, Version, open_store
from ...workspace.views import BRIEF, Unsettled
from ..agent import Agent, R
from ..live import Announcer, Interruption, Watch, limits, notices, supervisor_link
from . import preflight
from .execute import execute
from .preflight import Go
from .start import After, Outcome, Start, arguments_to_record, completed, left, record_arguments

_LOOK = 0.1

_REMOTE_LOOK = 4.0
"""Seconds between two looks at pause.yaml. In a bucket each is a request."""

Admit = Callable[[Look], None]
"""Gets the first look of a start, before anything is changed. What it raises refuses the start."""


def run(
    workspace: str | os.PathLike[str] | Store,
    agent: Agent[..., R] | None = None,
    *args: Any,
    input: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
    wake: bool = False,
    accept_drift: bool = False,
    drain_timeout: float | None = None,
    from_checkpoint: bool = False,
    take_over: bool = False,
    adopt: bool = False,
) -> Outcome[R]:
    """Run the agent of a workspace until it completes, fails, or needs a person. Continues where it stopped.

    `workspace` is a folder or a store. `agent` replaces the one that workspace.yaml names. `args` are its arguments
    besides the run, or `input` names them by parameter. The first start records them, and later starts need none:
    UsageError for other arguments, and for some that the agent does not take. A run that sleeps, is
    paused, or waits for answers is left alone, and its outcome is what it was, unless `wake` is given. With
    `accept_drift` it continues although code, settings, prompts, packages or models have changed under `on_drift:
    refuse`, or a reference is missing or has changed. `drain_timeout`: seconds that a stop waits for running work;
    replaces that of workspace.yaml. With `from_checkpoint` it first returns to the last known-good checkpoint; later
    effects and answers are kept. In a bucket this waits half a minute to see whether the earlier process is alive,
    unless `take_over` is given. With `adopt` it continues although it may be a copy of a run that lives elsewhere.

    Errors of the agent are in the outcome. A workspace that can't be opened raises a SatchelError, and so does a
    failing disk. UsageError in a running event loop: use `run_async`.
    """

    arguments.no_loop("run")

    return with_signals(
        Start(
            store=store_of(workspace),
            interruption=Interruption(),
            agent=agent,
            args=args,
            input=input,
            watch=watch,
            wake=wake,
            accept_drift=accept_drift,
            drain_timeout=drain_timeout,
            from_checkpoint=from_checkpoint,
            take_over=take_over,
            adopt=adopt,
        )
    ).outcome


async def run_async(
    workspace: str | os.PathLike[str] | Store,
    agent: Agent[..., R] | None = None,
    *args: Any,
    input: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
    wake: bool = False,
    accept_drift: bool = False,
    drain_timeout: float | None = None,
    from_checkpoint: bool = False,
    take_over: bool = False,
    adopt: bool = False,
) -> Outcome[R]:
    """`run` in a running event loop, whose owner handles signals. If the task is cancelled, the run is paused with
    everything written, and the cancellation continues."""
    start = Start(
        store=store_of(workspace),
        interruption=Interruption(),
        agent=agent,
        args=args,
        input=input,
        watch=watch,
        wake=wake,
        accept_drift=accept_drift,
        drain_timeout=drain_timeout,
        from_checkpoint=from_checkpoint,
        take_over=take_over,
        adopt=adopt,
        shares_loop=True,
    )
    return (await until_stop(start)).outcome


def with_signals(start: Start, admit: Admit | None = None) -> After:
    """Run it in a loop of its own. Signals pause it."""
    if supervisor_link.is_first_run():
        start = replace(start, restarts=True, rest=supervisor_link.rest)

    async def watched() -> After:
        with start.interruption.watched(), supervisor_link.beating():
            return await until_stop(start, admit)

    return asyncio.run(watched())


def store_of(workspace: str | os.PathLike[str] | Store) -> Store:
    is_store = hasattr(workspace, "abilities")
    return cast(Store, workspace) if is_store else open_store(arguments.place("workspace", workspace))


async def until_stop(start: Start, admit: Admit | None = None) -> After:
    """Run it in the current loop, again for what has come when it had completed."""
    after = await _run_once(start, admit)
    known: set[str] = set()
    while (outcome := after.outcome).entered:
        start = replace(start, wake=False, from_checkpoint=False, take_over=False, adopt=False)
        following: After | None = None
        if outcome.late - known and not start.interruption.count:
            known |= outcome.late  # once for each: a task may never be taken, or never settle
            following = await _take_late(start, outcome)
        elif outcome.status == "paused" and await resumes(start.store, start.interruption, start.watch):
            with suppress(Conflicting):  # else it stays paused until a person has resolved that
                following = await _run_once(start)
        if following is None:
            break
        following.outcome.noticed[:0] = outcome.noticed
        after = following
    return after


async def _take_late(start: Start, completed: Outcome) -> After | None:
    """Open a completed run again for what has come meanwhile. None if that gives it no work. Conflicting if it
    conflicts with the run."""
    try:
        after = await _run_once(start)
    except LeaseHeld:
        return None  # another process takes it
    except (Refused, InvalidFile) as error:  # it is kept, and the file restored
        completed.noticed.append(str(error))
        if start.watch:
            start.watch.noticed("refused", str(error))
        return None
    return None if after.outcome.status == "completed" and not after.outcome.entered else after


async def _run_once(start: Start, admit: Admit | None = None) -> After:
    """Run until it stops, for any reason."""
    await until_saved(start)

    def decided() -> tuple[Look, Decision]:
        seen = look(start.store)
        if admit is not None:
            admit(seen)
        return seen, decide(start, seen)

    while True:
        seen, decision = await start.aside(decided)
        with suppress(opening.Outdated):
            return await _carried_out(start, seen, decision)


async def _carried_out(start: Start, seen: Look, decision: Decision) -> After:
    match decision:
        case Leave() as leaves:
            return await leave(start, seen, leaves)
        case Stay() as stays:
            return await stay(start, seen, stays)
        case NothingToDo():
            return await start.aside(lambda: done(start, seen))
        case Go() as go:
            return await execute(start, seen, go) if await is_free(start) else left(seen.moment)


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


Decision = Leave | Stay | NothingToDo | Go


def decide(start: Start, seen: Look) -> Decision:
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
        is_over = not wanted.needs_file if start.wake else wanted.is_lifted and not wanted.is_missing
        if not is_over:
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


async def resumes(store: Store, interruption: Interruption, watch: Watch | None) -> bool:
    """Whether this process resumes the run: `status: resume` was typed before it had stopped, or the pause was expected
    to be shorter than `idle_below` and is over now. Never after a signal."""
    is_told = False
    while not interruption.count:
        try:
            seen = look(store)
        except (InvalidFile, NewerFormat) as error:  # in workspace.yaml, which no start uses yet
            if watch:
                watch.noticed("paused", f"{error}; the run stays paused")
            return False
        pause = seen.moment.pause
        if pause is None or not pause.paused_at or not seen.moment.clean or pause.mode != "drain" or pause.forced:
            return False
        version = store.version(pause_file.PATH)
        try:
            wanted = pausing.wish(store, seen.moment)
        except (InvalidFile, Unsettled) as error:  # it may be mended before the pause is over
            if not is_told or not pause.until or datetime.fromisoformat(pause.until) <= datetime.now(UTC):
                raise
            if watch:
                watch.noticed("paused", str(error))
            await _change(store, version, pause.until, interruption)
            continue
        if wanted is None or wanted.is_missing or wanted.mode != "drain":
            return False
        until = wanted.until
        if wanted.is_overruling or (is_told and until and datetime.fromisoformat(until) <= datetime.now(UTC)):
            return True
        if supervisor_link.shares_slots() or not wanted.is_short(seen.definition.idle_below):
            return False
        if watch and not is_told:
            watch.noticed("paused", f"{pausing.said(pause)}; it resumes by itself")
        is_told = True
        await _change(store, wanted.version, until, interruption)
    return False


async def _change(store: Store, version: Version | None, until: str, interruption: Interruption) -> None:
    """Return when pause.yaml has another version, it is time, or a signal came."""
    is_remote = store.abilities.remote
    end = datetime.fromisoformat(until)
    while (left := (end - datetime.now(UTC)).total_seconds()) > 0:
        await asyncio.sleep(min(left, _REMOTE_LOOK if is_remote else _LOOK))
        if interruption.count:
            return
        if is_remote:
            try:
                await asyncio.to_thread(store.refresh)
            except SatchelError:
                continue  # it does not answer now; the start at the end reports it if that lasts
        if store.version(pause_file.PATH) != version:
            return
