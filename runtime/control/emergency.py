"""The emergency stop, of one run or of many at once, and its undoing."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from ...workspace.base import DEFINITION, SatchelError, UsageError, arguments, myself
from ...workspace.formats import pause_file
from ...workspace.inspect import lease, transfer_file
from ...workspace.store import FileChanged
from ..supervision.emergency import Stopped, spared, stop
from .place import Place


def stop_all(places: Place | Iterable[Place], *, reason: str = "emergency", by: str | None = None) -> list[Stopped]:
    """Kill what runs these workspaces, all at once; see `Handle.stop`. Returns the outcome of each, in order.

    Of those that `open_all` has found, nothing is written to a run that no process has and that has never begun
    ("new"), or that is already paused until a person resumes it ("idle").

    UsageError if one of them is not a workspace, or if pause.yaml can't contain the `reason` or `by`; then none is
    stopped. Workspaces that `open_all` has found are accepted.
    """
    arguments.no_loop("stop_all", "call `await asyncio.to_thread(satchel.stop_all, ...)` there")
    given = [places] if isinstance(places, str | bytes) or not isinstance(places, Iterable) else [*places]
    if wrong := [each for each in given if not isinstance(each, Place)]:
        raise UsageError(f"{wrong[0]!r} is no handle", remedy="give what `satchel.open` or `satchel.open_all` returns")
    for place in given:
        _check(place, reason, by or myself())
    done = spared([place.store for place in given if place.was_found])
    rest = iter(_stopped([place for place in given if place.url not in done], reason, by or myself()))
    return [done.get(place.url) or next(rest) for place in given]


def stop_one(place: Place, reason: str, by: str | None) -> Stopped:
    """`Handle.stop`: whatever state it is in."""
    _check(place, reason, by or myself())
    (stopped,) = _stopped([place], reason, by or myself())
    return stopped


def _check(place: Place, reason: str, by: str) -> None:
    if not place.was_found and place.store.version(DEFINITION) is None:
        transfer_file.refuse_moved(place.store, None)
        raise UsageError(
            "is not a workspace", path=place.url, remedy="`satchel ls` lists the workspaces under a folder"
        )
    pause_file.check_wish(place.url, reason=reason, by=by)


def _stopped(places: list[Place], reason: str, by: str) -> list[Stopped]:
    elsewhere = next((place for place in places if place.store.abilities.remote), None)
    if elsewhere:
        elsewhere.tell("writing pause.yaml, and waiting some seconds for processes on other machines")
    mine = {place.url for place in places if _is_mine(place)}
    stopped = iter(stop([place.store for place in places if place.url not in mine], reason, by))
    return [_drain(place, reason, by) if place.url in mine else next(stopped) for place in places]


class Undone(Struct, frozen=True):
    """A run that an emergency stop has paused. `why` it stays so; empty if it goes on at its next start."""

    url: str
    why: str = ""


def undo_all(places: Iterable[Place], reason: str) -> list[Undone]:
    """Undo the emergency stops with this `reason`: each of these runs goes on at its next start. Starts none. Returns
    the runs that had been stopped so, in order. UsageError if there is none."""
    others: Counter[str] = Counter()
    found = [undone for place in places if (undone := _undo(place, reason, others)) is not None]
    if not found:
        reasons = [f"{each!r} ({runs} run{'s' * (runs > 1)})" for each, runs in others.most_common()]
        raise UsageError(
            f"no run was stopped with the reason {reason!r}",
            why=f"the reasons are: {', '.join(reasons)}" if reasons else "none of these runs is stopped",
            remedy="name one of them" if reasons else "`satchel ls` lists the workspaces under a folder",
        )
    return found


def _undo(place: Place, reason: str, others: Counter[str]) -> Undone | None:
    """None if it was not stopped with this reason. `others` counts the other reasons."""
    store = place.store
    try:
        there = store.read(pause_file.PATH, limit=pause_file.LIMIT)
        pause = pause_file.parse(there.data)
        if pause.mode != "emergency" or pause.status == "resume":
            return None
        if pause.reason != reason:
            others[pause.reason] += 1
            return None
        store.replace(pause_file.PATH, pause_file.filled(there.data, {"status": "resume"}), if_version=there.version)
        return Undone(place.url)
    except FileNotFoundError:
        return None
    except FileChanged:
        return Undone(place.url, "pause.yaml was changed meanwhile")
    except (SatchelError, OSError) as error:
        return Undone(place.url, str(error))


def _is_mine(place: Place) -> bool:
    """Whether this process runs or supervises it, and would kill itself."""
    try:
        held = lease.holder(place.store)
    except (SatchelError, OSError):
        return False  # the stop says what is wrong
    if held is None or held.host != socket.gethostname() or held.url != place.url:
        return False
    return os.getpid() in (held.pid, held.supervisor.pid if held.supervisor else 0)


def _drain(place: Place, reason: str, by: str) -> Stopped:
    from ...workspace.journal.records import PauseRequested  # slow: the kill of the others must not wait for it
    from .place import at_once
    from .requests import ask

    try:
        asked = at_once(ask(place, PauseRequested(reason=reason, by=by), wait=False))
    except SatchelError as error:  # it has just completed, say
        return Stopped(place.url, "failed", said=str(error))
    if asked.is_over:
        return Stopped(place.url, "idle", said=asked.said)
    return Stopped(place.url, "draining", said="this process runs it, and stops it at its next safe point")
