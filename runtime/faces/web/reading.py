"""The pages that read: one run, its past (log, plan, any moment, who set a value, each call, time, cost), and what two
moments or two runs differ in."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ....workspace.base import SatchelError, StorageFailed, UsageError
from ...api import RECORD_TYPES, Latest, LogRow, RunQuery, SeenRun, agent_of, records_before
from ...present import GAPS, PARTS, call_name, cost_curve, cost_tables, describe_call, draw, json_line, side_rows
from . import facts
from .site import RunRequest, Site, run_url

LOG = 200
"""Records on one page of the log, and items on one page of a plan."""

CHANGES = 200
"""Differences of a kind, and values with their origins, on one page."""

CHOICES = 50
"""Runs to choose from on one page, to compare with."""

LANES = 60
"""Rows of one page of what is drawn in time."""

CELLS = 100
"""Marks in a layer of a row, at most."""


def routes(site: Site) -> list[BaseRoute]:
    """The routes of this module. The last one matches the others, too."""

    past: dict[str, Callable[[RunRequest], Response]] = {
        "log": log,
        "plan": plan,
        "at/{at}": moment,
        "at": to_moment,
        "blame": blame,
        "call": call,
        "time": time,
        "cost": cost,
        "process": process,
        "diff": diff,
        "compare": compare,
    }
    others: dict[str, Callable[[Site, Request], Response]] = {
        "/run/{name:path}/-/": to_run,
        "/run/{name:path}": one_run,
    }
    return [
        *(Route(f"/run/{{name:path}}/-/{path}", site.of_run(show)) for path, show in past.items()),
        *(Route(path, functools.partial(show, site)) for path, show in others.items()),
    ]


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


def log(asked: RunRequest) -> Response:
    """The records, newest first."""
    before, item = asked.number("before", 1), asked.text("item")
    kind = asked.query.get("type", "")
    problem: SatchelError | None = None
    if not item and not kind:
        rows, problem = records_before(asked.handle, before, LOG)
    else:
        wanted: deque[LogRow] = deque(maxlen=LOG)
        try:
            for row in asked.handle.history.log(item=item or None, type=kind or None):
                if before is not None and row.line.seq >= before:
                    break
                wanted.append(row)
        except SatchelError as error:
            problem = error
        rows = [*wanted]
    found = facts.timeline(row.line for row in rows)[::-1]
    query = {"type": kind, "item": item}
    return asked.page(
        "log.html",
        timeline=found,
        before=before,
        problem=problem,
        query=query,
        types=RECORD_TYPES,
        more=found[-1].seq if len(found) == LOG else 0,
    )


def plan(asked: RunRequest) -> Response:
    """The whole plan, as it is now, a part at a time."""
    status = asked.handle.status()
    agents = status.moment.agents if status.moment else {}
    agent = asked.query.get("agent", "")
    found = agents[agent].plan if agent in agents and agent else status.plan
    part = facts.plan_part(found, begin=asked.number("begin") or 0, most=LOG)
    others = [path for path, each in agents.items() if each.plan.tasks]
    return asked.page("plan.html", status=status, plan=part, agent=agent, agents=others, most=LOG)


def to_moment(asked: RunRequest) -> Response:
    """The form that asks for a record."""
    at = asked.text("to") or "latest"
    return RedirectResponse(run_url(asked.name, "at", at), 303)


def moment(asked: RunRequest) -> Response:
    """The whole run as it was right after a record."""
    at = asked.request.path_params["at"]
    try:
        shown = asked.handle.history.show(at)
    except StorageFailed:
        raise
    except SatchelError as error:
        if at != "latest":
            raise
        status = asked.handle.status(brief=True)
        is_new = status.problem is None and status.moment is not None and status.moment.is_new
        problem = None if is_new else status.problem or error
        return asked.page("no_moment.html", status=status, problem=problem)
    by_path = {each.path: each for each in shown.agents}
    agent = by_path.get(asked.query.get("agent", "")) or shown.agents[0]
    pointer = asked.query.get("path", "")
    pointer = pointer if pointer.startswith("/") else ""
    around = [row for row in (shown.before, shown.record, shown.after) if row is not None]
    part = facts.plan_part(shown.moment.agents[agent.path].plan, centred=True)
    return asked.page(
        "moment.html",
        shown=shown,
        agent=agent,
        state=facts.folded(agent.data, pointer, asked.number("begin") or 0),
        above=facts.above(pointer),
        plan=part,
        around=facts.timeline(row.line for row in around),
        is_latest=at == "latest",
        at=at,
    )


def blame(asked: RunRequest) -> Response:
    """Which record set each value."""
    path = asked.query.get("path", "").strip() or "state.json"
    found = asked.handle.history.blame(path)
    return asked.page("blame.html", blame=found, path=path, most=CHANGES, preview=json_line)


def call(asked: RunRequest) -> Response:
    """One call of a step or an effect, with all that its records tell."""
    found = asked.handle.history.call(asked.text("of"))
    facts_of: dict[str, Any] = {
        "call": found.call,
        "arguments": None if found.arguments is None else facts.folded(found.arguments),
        "result": facts.folded(found.result) if found.call.state == "completed" else None,
        "timeline": facts.timeline(found.records),
    }
    return asked.page("call.html", found=found, **facts_of)


def time(asked: RunRequest) -> Response:
    """When each call worked and waited, drawn: a part of the items, or the calls of one."""
    of = asked.text("of")
    longest, begin = asked.query.get("by") == "took", asked.number("begin") or 0
    timing = asked.handle.history.timing(of or None)
    drawing = draw(timing, longest=longest, begin=begin, most=LANES, cells=CELLS)
    shown: dict[str, Any] = {"timing": timing, "drawing": drawing, "of": of, "longest": longest, "most": LANES}
    return asked.page("time.html", parts=PARTS, gaps=GAPS, **shown)


def cost(asked: RunRequest) -> Response:
    """What the run has cost, in tables with bars, and how the sum has grown."""
    report, status = asked.handle.history.costs(), asked.handle.status()
    curve = cost_curve(report, status.budget)
    return asked.page("cost.html", report=report, status=status, tables=cost_tables(report), curve=curve)


def process(asked: RunRequest) -> Response:
    """What the processes of the run have printed: the end, or a page of it. live.py keeps the end current."""
    return asked.page("process.html", **process_facts(asked))


def process_facts(asked: RunRequest) -> dict[str, Any]:
    """All that run/process.html needs besides the name and the status."""
    before, after = asked.number("before"), asked.number("after")
    found = asked.handle.history.process_log_page(before=before, after=after)
    is_newest = (before is None and after is None) or found.end >= found.bytes
    return {"found": found, "is_newest": is_newest, "is_remote": asked.handle.store.abilities.remote}


# Two moments, or two runs


def diff(asked: RunRequest) -> Response:
    """What two moments differ in, or this run and another one."""
    old, new = (asked.text(name) for name in ("old", "new"))
    other = asked.query.get("run", "").strip()
    if not other and not old:
        raise UsageError("there is nothing to compare with", remedy="name a record, an item such as ^3, or another run")
    against = asked.site.handle(asked.site.find(other)) if other else None
    found = asked.handle.history.diff(against or old, new or "latest")
    facts_of: dict[str, Any] = {
        "difference": found,
        "rows": side_rows(found, 400),
        "most": CHANGES,
        "other": other,
        "preview": json_line,
        "outcome": describe_call,
        "call_name": call_name,
    }
    return asked.page("diff.html", **facts_of)


class Choice(NamedTuple):
    """A run to compare with, and why it comes early in the list: `kin`."""

    run: SeenRun
    kin: str


def compare(asked: RunRequest) -> Response:
    """The runs to compare with: forks and originals first, then those of the same agent, the latest first."""
    text = asked.text("q")
    seen = asked.site.runs()
    found = RunQuery(text, sort="activity").of(seen.runs if seen else ())
    run, agent = asked.run, agent_of(asked.run.status)
    others = [each for each in found if each.url != run.url and each.status.moment and not each.status.moment.is_new]
    choices = [Choice(each, _kin(run, each)) for each in others]
    choices.sort(key=lambda each: (not each.kin, agent_of(each.run.status) != agent))
    begin = asked.number("begin") or 0
    return asked.page(
        "compare.html",
        text=text,
        agent=agent,
        choices=choices[begin : begin + CHOICES],
        begin=begin,
        total=len(choices),
        most=CHOICES,
    )


def _kin(run: SeenRun, other: SeenRun) -> str:
    if _is_fork(other, run):
        return "a fork of this run"
    return "this run is its fork" if _is_fork(run, other) else ""


def _is_fork(run: SeenRun, original: SeenRun) -> bool:
    forked = run.status.moment.forked if run.status.moment else None
    there = original.status.definition
    return forked is not None and there is not None and forked.run_id == there.run_id
