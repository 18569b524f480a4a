"""Run an agent over a workspace in this process, from opening to stop. After a short pause this process may resume it.

By then the run is paused like any other: its files are closed, its resources released, its lease given up. If a person
types `satchel resume` meanwhile, that process takes it and this one ends. A process that shares slots with others does
not wait.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

from msgspec.structs import replace

from ...workspace.base import Conflicting, InvalidFile, LeaseHeld, NewerFormat, Refused, SatchelError, arguments
from ...workspace.formats import pause_file
from ...workspace.inspect import Look, look
from ...workspace.lifecycle import opening, pausing
from ...workspace.store import Store, Version, open_store
from ...workspace.views import Unsettled
from ..agent import Agent, R
from ..live import Interruption, Watch, supervisor_link
from .decision import Go, Leave, NothingToDo, Stay, decide, done, is_free, leave, left, stay, until_saved
from .execute import execute
from .start import After, Outcome, Start

_LOOK = 0.1
_REMOTE_LOOK = 4.0
"""Seconds between two looks at pause.yaml. In a bucket each is a request."""


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


def with_signals(start: Start, admit: Admit | None = None) -> After:
    """Run it in a loop of its own. Signals pause it."""
    if supervisor_link.is_first_run():
        start = replace(start, restarts=True, rest=supervisor_link.rest)

    async def watched() -> After:
        with start.interruption.watched(), supervisor_link.beating():
            return await until_stop(start, admit)

    return asyncio.run(watched())


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

    def decided() -> tuple[Look, Leave | Stay | NothingToDo | Go]:
        seen = look(start.store)
        if admit is not None:
            admit(seen)
        return seen, decide(start, seen)

    while True:
        seen, decision = await start.aside(decided)
        with suppress(opening.Outdated):
            return await _carried_out(start, seen, decision)


async def _carried_out(start: Start, seen: Look, decision: Leave | Stay | NothingToDo | Go) -> After:
    match decision:
        case Leave() as leaves:
            return await leave(start, seen, leaves)
        case Stay() as stays:
            return await stay(start, seen, stays)
        case NothingToDo():
            return await start.aside(lambda: done(start, seen))
        case Go() as go:
            return await execute(start, seen, go) if await is_free(start) else left(seen.moment)
