"""What a start waits for before it takes the workspace: people who save a file, and the heartbeat of a process that may
be dead."""

from __future__ import annotations

import asyncio

from ...workspace.lifecycle import heartbeat
from ...workspace.people import saving
from .aside import aside
from .start import Start


async def until_saved(start: Start) -> None:
    """Wait until people have finished saving files, or for a signal."""
    told: set[str] = set()
    looks = saving.until_saved(start.store)
    while (found := await aside(start, lambda: next(looks, None))) is not None:
        pause, path = found
        if start.watch and path not in told:
            start.watch.noticed("waiting", saving.said(path))
        told.add(path)
        await asyncio.sleep(pause)
        if start.interruption.count:
            return


async def is_free(start: Start) -> bool:
    """Wait until the workspace may be taken; LeaseHeld if it may not. False if a signal came meanwhile."""
    if start.take_over:
        return True
    is_told = False
    for pause, held in heartbeat.until_free(start.store):
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
