"""The pages that read: one run, its past (log, plan, any moment, who set a value, each call, time, cost), and what two
moments or two runs differ in. Each is bounded: a huge run makes no huge page, and of JSON values of any size it has a
part; the rest comes when it is opened."""

from __future__ import annotations

import functools
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ....workspace.base import SatchelError, StorageFailed, UsageError
from ....workspace.journal import Line
from ....workspace.plan import Plan, Task
from ....workspace.state import ROOT, json_patch
from ...api import (
    RECORD_TYPES,
    Latest,
    LogRow,
    RunningCall,
    RunQuery,
    RunStatus,
    SeenRun,
    Shot,
    agent_of,
    records_before,
)
from ...present import (
    GAPS,
    PARTS,
    Timeline,
    TimelineEvent,
    agent_lines,
    call_name,
    cost_curve,
    cost_tables,
    describe_call,
    draw,
    json_line,
    side_rows,
    stream_name,
)
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


PLAN = 24
"""Items of a plan on the page of a run; the plan has a page of its own."""

DONE = 12
"""Items of a plan without anything left to do: what came of it is more worth the room."""

BEFORE = 8
"""Of these, how many come before the first that is not finished."""

TIMELINE = 40
"""Records on the page of a run; the log has pages of its own."""

LISTED = 12
"""Files, sub-agents and scopes that are listed."""

STREAM = 4000
"""Characters of streamed text, from its end."""

PIECE = 500
"""Characters of a piece of it, at most. Its beginning goes away piece by piece."""


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
    return site.page(request, "run.html", name=name, run=run, **of_shot(shot))


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
    found = timeline(row.line for row in rows)[::-1]
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
    part = plan_part(found, begin=asked.number("begin") or 0, most=LOG)
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
    part = plan_part(shown.moment.agents[agent.path].plan, centred=True)
    return asked.page(
        "moment.html",
        shown=shown,
        agent=agent,
        state=folded(agent.data, pointer, asked.number("begin") or 0),
        above=above(pointer),
        plan=part,
        around=timeline(row.line for row in around),
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
        "arguments": None if found.arguments is None else folded(found.arguments),
        "result": folded(found.result) if found.call.state == "completed" else None,
        "timeline": timeline(found.records),
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


# What the page of one run shows, from a look at it


class PlanRow(Struct, frozen=True):
    """An item of a plan."""

    id: str
    text: str
    mark: str
    depth: int


class PlanPart(Struct, frozen=True):
    """Rows of a plan, with how many come before and after them."""

    rows: list[PlanRow]
    before: int
    after: int


class Doing(Struct, frozen=True):
    """An open scope: an item, or a named part of the agent. `running`: its calls that run for long. `began`: other
    effects that have begun and not ended."""

    agent: str
    scope: str
    title: str
    finished: int
    newest: str
    running: tuple[RunningCall, ...]
    began: tuple[str, ...]
    failures: int


class Piece(NamedTuple):
    """A line of a streamed text, or a part of a long one, and the number of characters before it. It stays the same
    while the text grows, so that a browser can keep it in its place."""

    at: int
    text: str


class StreamedText(Struct, frozen=True):
    """Text that is streamed, or that a crash has cut off: its end, in pieces."""

    path: str
    call: str
    agent: str
    attempt: int
    pieces: list[Piece]
    characters: int
    damaged: bool


def of_shot(shot: Shot) -> dict[str, Any]:
    """All that run.html needs besides the name."""
    status, plan = shot.status, shot.status.plan
    is_open = plan is not None and plan.next_to_do() is not None
    return {
        "status": status,
        "shot": shot,
        "moment": status.moment,
        "plan": plan_part(plan, centred=True, most=PLAN if is_open else DONE),
        "timeline": timeline(row.line for row in shot.rows)[: -TIMELINE - 1 : -1],
        "doing": doing(status),
        "streams": [*streams(status)],
        "below": [*agent_lines(status.moment)] if status.moment else [],
        "outputs": sorted((path, each.bytes) for path, each in status.moment.outputs.items()) if status.moment else [],
    }


def plan_part(plan: Plan | None, *, centred: bool = False, begin: int = 0, most: int = PLAN) -> PlanPart:
    """A part of a plan: from item `begin` on, or around the next one."""
    tasks = plan.tasks if plan else ()
    at = plan.next_to_do() if plan else None
    if centred:
        first = at.index if at else len(tasks)
        begin = max(0, min(first - BEFORE, len(tasks) - most))
    begin = min(begin, max(0, len(tasks) - 1))
    shown = tasks[begin : begin + most]
    rows = [PlanRow(each.id or "", each.text, each.mark, _depth(each, tasks)) for each in shown]
    return PlanPart(rows, begin, len(tasks) - begin - len(shown))


def _depth(task: Task, tasks: Sequence[Task]) -> int:
    depth = 0
    while task.parent is not None and depth < 6:
        task, depth = tasks[task.parent], depth + 1
    return depth


def timeline(lines: Iterable[Line]) -> list[TimelineEvent]:
    """Records in words, in their order."""
    return [*map(Timeline().of, lines)]


def doing(status: RunStatus) -> list[Doing]:
    """The open scopes of all agents, the run's own first."""
    found = []
    for path, agent in status.moment.agents.items() if status.moment else ():
        for key, scope in agent.scopes.items():
            newest = next(scope.newest(1), None)
            running = tuple(each for each in status.running if (each.agent, each.scope) == (path, key))[:LISTED]
            if key == ROOT and not scope.started and not running:
                continue
            shown = {each.key for each in running}
            begun = tuple(call_name(each) for each in scope.started.values() if each.key not in shown)
            done = call_name(newest) if newest else ""
            calls = done, running, begun[:LISTED]
            found.append(Doing(path, key, scope.title, scope.finished, *calls, scope.failures))
    return found


def streams(status: RunStatus) -> Iterator[StreamedText]:
    """The ends of streamed texts."""
    for each in status.streams[:LISTED]:
        head = each.head
        agent, attempt = (head.agent, head.attempt) if head else ("", 1)
        yield StreamedText(
            each.path, stream_name(each), agent, attempt, [*pieces(each.text)], len(each.text), each.damaged
        )


def pieces(text: str) -> Iterator[Piece]:
    """The pieces that are whole in the last `STREAM` characters of a text, in their order."""
    first = max(0, len(text) - STREAM)
    at = line = text.rfind("\n", 0, first) + 1
    at += (first - line) // PIECE * PIECE
    while at < len(text):
        end = text.find("\n", at, at + PIECE) + 1 or min(at + PIECE, len(text))
        if at >= first:
            yield Piece(at, text[at:end])
        at = end


# JSON of any size

NODES = 300
"""Values of a folded value that are on a page from the beginning; the others come when they are opened."""

DEPTH = 8

PIECE_OF_TEXT = 20_000
"""Characters of a long text in one piece."""

_SHORT_TEXT = 2_000

_WIDTH = 160


class Folded(Struct, frozen=True):
    """A JSON value to unfold. `path` is its JSON pointer. `text`: the value itself, or the beginning of a long text.
    `parts`: the values in it, of which there are `size` (None: it has none). `rest`: where to go on, in values or in
    characters; None at its end."""

    key: str
    path: str
    text: str
    is_text: bool
    size: int | None
    parts: list[Folded]
    rest: int | None = None


def folded(value: Any, pointer: str = "", begin: int = 0, *, nodes: int = NODES, text: int = PIECE_OF_TEXT) -> Folded:
    """The value at a JSON pointer, its first `nodes` values unfolded, those of a level before those in them, and so
    many characters of its text. Bounded, whatever its size. UsageError if there is nothing."""
    for part in json_patch.split(pointer):
        value = _inside(value, part, pointer)
    return _fold(pointer.rpartition("/")[2], pointer, value, begin, [nodes], text, 0)


def above(pointer: str) -> list[tuple[str, str]]:
    """The pointers that lead to a value, and it, each with its key."""
    found = [("", "")]
    for part in json_patch.split(pointer):
        found.append((f"{found[-1][0]}/{json_patch.escape(part)}", part))
    return found[1:]


def _fold(key: str, path: str, value: Any, begin: int, left: list[int], longest: int, depth: int) -> Folded:
    if isinstance(value, str):
        rest = begin + longest if len(value) > begin + longest else None
        return Folded(key, path, value[begin : begin + longest], True, None, [], rest)
    if not isinstance(value, dict | list):
        return Folded(key, path, json.dumps(value, ensure_ascii=False), False, None, [])
    most = left[0] if depth < DEPTH else 0
    here = [*islice(_parts(value), begin, begin + most)]
    left[0] -= len(here)
    inside = min(longest, _SHORT_TEXT)
    parts = [_fold(name, f"{path}/{json_patch.escape(name)}", each, 0, left, inside, depth + 1) for name, each in here]
    at = begin + len(here)
    return Folded(key, path, json_line(value, _WIDTH), False, len(value), parts, at if at < len(value) else None)


def _inside(value: Any, part: str, pointer: str) -> Any:
    if isinstance(value, dict) and part in value:
        return value[part]
    if isinstance(value, list) and part.isascii() and part.isdecimal() and int(part[:9]) < len(value):
        return value[int(part[:9])]
    raise UsageError(f"there is no value {pointer}", remedy="look at the whole of it")


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from ((str(index), each) for index, each in enumerate(value))
