"""The emergency stop of all runs below the root: a page that says what it will kill, and one press."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ...workspace.base import SatchelError
from .. import control
from ..control import counted
from ..supervision.emergency import Stopped
from .acting import outcome_of
from .notes import Note
from .site import Site

PATH = "/-/stop-all"

_NAMED = 40
"""Active runs that the page names before it kills them."""

_IDLE = 500
"""Runs without a process that are named afterwards, one a line. All the others are."""

_ORDER = ("failed", "elsewhere", "draining", "stopped", "idle", "new")
"""What a person may have to do something about comes first."""


def routes(site: Site) -> list[BaseRoute]:
    """The routes of this module."""

    def page(show: Callable[[Site, Request], Response]) -> Callable[[Request], Response]:
        return lambda request: show(site, request)

    return [Route(PATH, page(confirm), methods=["GET"]), Route("/-/act/stop-all", page(stop), methods=["POST"])]


def confirm(site: Site, request: Request) -> Response:
    """What will be killed, and the form. After a stop also what became of each run."""
    return site.page(request, "stop_all.html", **_facts(site))


def stop(site: Site, request: Request) -> Response:
    """Kill what runs below the root, as `satchel stop --all` does: found now, not from the last look of the list."""
    typed = dict(request.state.form)
    try:
        places = control.open_all(site.overview.url)
        stopped = control.stop_all(places, reason=typed.get("reason", "").strip() or "emergency")
    except SatchelError as error:
        return site.page(request, "stop_all.html", 422, typed=typed, error=error, **_facts(site))
    is_bad = any(each.how == "failed" for each in stopped)
    site.runs(patience=None, now=not site.overview.is_remote)  # the page that follows shall not name what is dead
    note = site.notes.keep(Note(tuple(told(site, stopped)), is_bad))
    return RedirectResponse(f"{PATH}?note={note}", 303)


def told(site: Site, stopped: list[Stopped]) -> list[str]:
    """A line about all, and one for each run."""
    if not stopped:
        return ["There is no run to stop."]
    count = Counter[str](each.how for each in stopped)
    words = {
        "failed": "not stopped",
        "elsewhere": "asked to stop on another machine",
        "draining": "stopping",
        "stopped": "stopped",
        "idle": "not running",
        "new": "never begun and left alone",
    }
    rest = max(0, count["idle"] - _IDLE)
    begun = [each for each in stopped if each.how != "new"]
    shown = sorted(begun, key=lambda each: _ORDER.index(each.how))[: len(begun) - rest]
    lines = [
        f"Of {counted(len(stopped), 'run')}: {', '.join(f'{count[how]} {words[how]}' for how in _ORDER if count[how])}."
    ]
    lines += [f"{site.name_at(each.url)}: {outcome_of(each)}." for each in shown]
    return [*lines, f"And {rest} more that were not running."] if rest else lines


def _facts(site: Site) -> dict[str, Any]:
    """The runs that a process runs, by name, and how many there are. `seen` is None before the first look."""
    seen = site.runs()
    runs = seen.runs if seen else []
    active = [site.name_of(run) for run in runs if run.standing.holder is not None]
    return {"seen": seen, "active": active, "named": active[:_NAMED], "others": len(runs) - len(active)}
