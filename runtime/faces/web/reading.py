"""The pages that read: all runs, one run, and its past: log, plan, messages, any moment, what two moments differ in,
who set a value, and the files that it has made, as text: outputs, recovered answers, and the reasons of refused edits.
"""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Callable
from typing import Any
from urllib.parse import quote
from zlib import crc32

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ....workspace.base import SatchelError, StorageFailed, UsageError
from ...api import (
    RECORD_TYPES,
    STATES,
    ConversationMessage,
    Handle,
    Latest,
    LogRow,
    Seen,
    SeenRun,
    State,
    by_need,
    conversation,
    records_before,
)
from ...present import json_line
from . import facts
from .site import Site, run_url

PAGE = 100
"""Runs on one page of the list."""

LOG = 200
"""Records on one page of the log, and items on one page of a plan."""

CHANGES = 200
"""Differences, and values with their origins, on one page."""

Shows = Callable[[Site, Request, SeenRun, Handle], Response]


def routes(site: Site) -> list[BaseRoute]:
    """The routes of this module. The last one matches the others, too."""

    def of_run(show: Shows) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            run = site.find(request.path_params["name"])
            return show(site, request, run, site.handle(run))

        return answer

    past: dict[str, Shows] = {
        "log": log,
        "plan": plan,
        "at/{at}": moment,
        "at": to_moment,
        "diff": diff,
        "blame": blame,
        "messages": messages,
    }
    others: dict[str, Callable[[Site, Request], Response]] = {
        "/": all_runs,
        "/run/{name:path}/-/files": all_files,
        "/run/{name:path}/-/file": one_file,
        "/run/{name:path}/-/": to_run,
        "/run/{name:path}": one_run,
    }
    return [
        *(Route(f"/run/{{name:path}}/-/{path}", of_run(show)) for path, show in past.items()),
        *(Route(path, functools.partial(show, site)) for path, show in others.items()),
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


# The past of a run


def number(request: Request, name: str, least: int = 0) -> int | None:
    """A number of the query. None if it is missing or none."""
    text = request.query_params.get(name, "")
    return max(least, int(text)) if text.isascii() and text.isdecimal() and len(text) <= 12 else None


def log(site: Site, request: Request, run: SeenRun, handle: Handle) -> Response:
    """The records, newest first."""
    before, item = number(request, "before", 1), request.query_params.get("item", "").strip()[:200]
    kind = request.query_params.get("type", "")
    problem: SatchelError | None = None
    if not item and not kind:
        rows, problem = records_before(handle, before, LOG)
    else:
        wanted: deque[LogRow] = deque(maxlen=LOG)
        try:
            for row in handle.history.log(item=item or None, type=kind or None):
                if before is not None and row.line.seq >= before:
                    break
                wanted.append(row)
        except SatchelError as error:
            problem = error
        rows = [*wanted]
    found = facts.timeline(rows)[::-1]
    query = {"type": kind, "item": item}
    return site.run_page(
        request,
        "log.html",
        run,
        handle,
        timeline=found,
        before=before,
        problem=problem,
        query=query,
        types=RECORD_TYPES,
        more=found[-1].seq if len(found) == LOG else 0,
    )


def plan(site: Site, request: Request, run: SeenRun, handle: Handle) -> Response:
    """The whole plan, as it is now, a part at a time."""
    status = handle.status()
    agents = status.moment.agents if status.moment else {}
    agent = request.query_params.get("agent", "")
    found = agents[agent].plan if agent in agents and agent else status.plan
    part = facts.plan_part(found, begin=number(request, "begin") or 0, most=LOG)
    others = [path for path, each in agents.items() if each.plan.tasks]
    return site.run_page(
        request, "plan.html", run, handle, status=status, plan=part, agent=agent, agents=others, most=LOG
    )


def to_moment(site: Site, request: Request, run: SeenRun, handle: Handle) -> Response:
    """The form that asks for a record."""
    at = request.query_params.get("to", "").strip()[:200] or "latest"
    return RedirectResponse(run_url(site.name_of(run), "at", at), 303)


def moment(site: Site, request: Request, run: SeenRun, handle: Handle) -> Response:
    """The whole run as it was right after a record."""
    at = request.path_params["at"]
    try:
        shown = handle.history.show(at)
    except StorageFailed:
        raise
    except SatchelError as error:
        if at != "latest":
            raise
        status = handle.status(brief=True)
        is_new = status.problem is None and status.moment is not None and status.moment.is_new
        problem = None if is_new else status.problem or error
        return site.run_page(request, "no_moment.html", run, handle, status=status, problem=problem)
    by_path = {each.path: each for each in shown.agents}
    agent = by_path.get(request.query_params.get("agent", "")) or shown.agents[0]
    pointer = request.query_params.get("path", "")
    here = facts.level(agent.data, pointer if pointer.startswith("/") else "", number(request, "begin") or 0)
    around = [row for row in (shown.before, shown.record, shown.after) if row is not None]
    part = facts.plan_part(shown.moment.agents[agent.path].plan, centred=True)
    return site.run_page(
        request,
        "moment.html",
        run,
        handle,
        shown=shown,
        agent=agent,
        level=here,
        plan=part,
        around=facts.timeline(around),
        is_latest=at == "latest",
        at=at,
        most=facts.MOST,
    )


def diff(site: Site, request: Request, run: SeenRun, handle: Handle) -> Response:
    """What two moments differ in, or this run and another one."""
    old, new = (request.query_params.get(name, "").strip()[:200] for name in ("old", "new"))
    other = request.query_params.get("run", "").strip()
    if not other and not old:
        raise UsageError("there is nothing to compare with", remedy="name a record, an item such as ^3, or another run")
    against = site.handle(site.find(other)) if other else None
    found = handle.history.diff(against or old, new or "latest")
    facts_of: dict[str, Any] = {"difference": found, "most": CHANGES, "other": other, "preview": json_line}
    return site.run_page(request, "diff.html", run, handle, **facts_of)


def blame(site: Site, request: Request, run: SeenRun, handle: Handle) -> Response:
    """Which record set each value."""
    path = request.query_params.get("path", "").strip() or "state.json"
    found = handle.history.blame(path)
    return site.run_page(request, "blame.html", run, handle, blame=found, path=path, most=CHANGES, preview=json_line)


def messages(site: Site, request: Request, run: SeenRun, handle: Handle) -> Response:
    """The conversation, its end first."""
    before = number(request, "before", 1)
    found: list[ConversationMessage] = []
    problem: SatchelError | None = None
    try:
        found = conversation(handle)[:before]
    except SatchelError as error:
        problem = error
    return site.run_page(
        request,
        "messages.html",
        run,
        handle,
        messages=found[: -LOG - 1 : -1],
        problem=problem,
        more=max(0, len(found) - LOG),
    )


_LIMIT = 64 << 20
"""Bytes of a file that the page reads at most."""

_SHOWN = 200_000
"""Characters of it that are shown; the download has all."""


def all_files(site: Site, request: Request) -> Response:
    """The outputs, by name."""
    run = site.find(request.path_params["name"])
    handle = site.handle(run)
    status = handle.status(brief=True)
    begin = number(request, "begin") or 0
    found = facts.outputs(status)
    return site.run_page(
        request,
        "files.html",
        run,
        handle,
        status=status,
        files=found[begin : begin + LOG],
        begin=begin,
        total=len(found),
        most=LOG,
    )


def one_file(site: Site, request: Request) -> Response:
    """A readable file as text, redacted; with `?raw` as a download. Never as a page of its own, because a stranger may
    have written it."""
    run = site.find(request.path_params["name"])
    path, handle = request.query_params.get("path", ""), site.handle(run)
    data = handle.files.read(path, limit=_LIMIT)
    if "raw" in request.query_params:
        name = quote(path.rpartition("/")[2])
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}", "x-content-type-options": "nosniff"}
        return Response(data, media_type="application/octet-stream", headers=headers)
    is_text = b"\0" not in data[:8192]
    text = data[: _SHOWN * 4].decode(errors="replace")[:_SHOWN] if is_text else ""
    return site.run_page(
        request,
        "file.html",
        run,
        handle,
        path=path,
        text=text,
        bytes=len(data),
        is_text=is_text,
        is_cut=is_text and len(text) >= _SHOWN,
    )
