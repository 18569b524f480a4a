"""What a process does after its run has paused: it ends, or waits for the end of a short pause.

By then the run is paused like any other: its files are closed, its resources released, its lease given up. If a person
types `satchel resume` meanwhile, that process takes it and this one ends. A process that shares slots with others does
not wait.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from ...workspace.base import InvalidFile, NewerFormat, SatchelError
from ...workspace.formats import pause_file
from ...workspace.inspect import look
from ...workspace.lifecycle import pausing
from ...workspace.store import Store, Version
from ...workspace.views import Unsettled
from ..engine import Interruption, Watch, uplink

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
        if uplink.shares_slots() or not wanted.is_short(seen.definition.idle_below):
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
