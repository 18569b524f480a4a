"""The pages that read: all runs, and one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from zlib import crc32

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ....workspace.base import SatchelError
from ...api import STATES, Latest, Seen, SeenRun, State, by_need
from . import facts
from .site import Site, run_url

PAGE = 100
"""Runs on one page of the list."""


def routes(site: Site) -> list[BaseRoute]:
    """The routes of this module."""

    def page(show: Callable[[Site, Request], Response]) -> Callable[[Request], Response]:
        return lambda request: show(site, request)

    return [
        Route("/", page(all_runs)),
        Route("/run/{name:path}/-/", page(to_run)),
        Route("/run/{name:path}", page(one_run)),
    ]


class Listed(Struct, frozen=True):
    """A page of the list of runs. `total`: all; `matching`: those that match the search, and `counts`, by state."""

    runs: list[SeenRun]
    total: int
    matching: int
    counts: list[tuple[State, int]]
    wanted: int
    number: int
    pages: int


class ListQuery(Struct, frozen=True):
    """What a person wants to see of the list: a text in names, ids and items; a state, or `wanted`; and which page."""

    text: str = ""
    state: str = ""
    number: int = 1

    @property
    def key(self) -> str:
        """Another one for another query, as part of an id in HTML."""
        return f"{crc32(repr((self.text, self.state, self.number)).encode()):08x}"

    @classmethod
    def of(cls, request: Request) -> ListQuery:
        number = request.query_params.get("page", "1")
        return cls(
            request.query_params.get("q", "").strip()[:200],
            request.query_params.get("state", ""),
            min(int(number), 1_000_000) if number.isascii() and number.isdecimal() and len(number) < 7 else 1,
        )


def listed(site: Site, seen: Seen, query: ListQuery) -> Listed:
    """The runs that match, those first that need a person; of each state the latest first."""
    found = [run for run in seen.runs if matches(site, run, query.text)]
    matching, counts = len(found), Counter[str](run.status.state for run in found)
    needing = [run for run in found if run.status.needs_person]
    if query.state == "wanted":
        found = needing
    elif query.state:
        found = [run for run in found if run.status.state == query.state]
    found.sort(key=lambda run: run.status.at, reverse=True)
    found.sort(key=lambda run: by_need(run.status))
    pages = max(1, -(-len(found) // PAGE))
    number = min(max(1, query.number), pages)
    shown = found[(number - 1) * PAGE : number * PAGE]
    by_state = [(state, counts[state]) for state in STATES if counts[state]]
    return Listed(shown, len(seen.runs), matching, by_state, len(needing), number, pages)


def matches(site: Site, run: SeenRun, text: str) -> bool:
    """Whether each word is in the run's name, id, agent, or in the item that it is at."""
    if not text:
        return True
    status = run.status
    parts = [site.name_of(run), status.state]
    if status.definition:
        parts += [status.definition.run_id, status.definition.agent]
    if status.at_work:
        parts.append(status.at_work.text)
    there = " ".join(parts).casefold()
    return all(word in there for word in text.casefold().split())


def list_facts(site: Site, request: Request) -> dict[str, Any]:
    """What list.html and runs.html show. `seen` is None while the first listing is being read."""
    query, seen = ListQuery.of(request), site.runs()
    return {"seen": seen, "query": query, "listed": listed(site, seen, query) if seen else None}


def all_runs(site: Site, request: Request) -> Response:
    """The list. For htmx, which asks while a person types, only its rows."""
    is_part = request.headers.get("hx-request-type") == "partial"
    return site.page(request, "runs.html" if is_part else "list.html", **list_facts(site, request))


def one_run(site: Site, request: Request) -> Response:
    """Where one run is, and what it does; live.py keeps it current. One that can't be read can be stopped, too."""
    run = site.find(request.path_params["name"])
    name = site.name_of(run)
    try:
        shot = Latest(site.handle(run)).look()
    except SatchelError as error:
        return site.page(request, "gone.html", 503, name=name, error=error)
    return site.page(request, "run.html", name=name, run=run, **facts.of_shot(shot))


def to_run(site: Site, request: Request) -> Response:
    return RedirectResponse(run_url(request.path_params["name"]))
