"""The list of all runs: which of them, in which order, one page at a time; and acts on those that a person has ticked.

The whole view is in the query of its URL, so a link leads back to it. The list is a form that leads to a page which
says what an act will do to which runs. Its button does it, to one after the other: one that refuses does not hide what
became of the others. The emergency stop is a page that says what it will kill, and one press.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ....workspace.base import SatchelError, UsageError
from ....workspace.state import Moment
from ... import api
from ...api import BY_NEED, ORDERS, STATES, Handle, RunQuery, Seen, SeenRun, State, agent_of
from ...present import STOPS, AgentLine, agent_lines, counted, describe_stop, size, stop_counts
from ...supervision import StopResult
from .site import Note, Site, run_url
from .starting import go_on

PAGE = 100
"""Runs on one page of the list."""

WANTED = "wanted"
"""What stands for a state in the query of runs that need a person."""

COSTS = ("0.01", "0.1", "1", "10", "100")
"""Least costs to choose from, in dollars."""

AGES = {
    "since=1h": "in the last hour",
    "since=1d": "in the last day",
    "since=7d": "in the last week",
    "before=1d": "not for a day",
    "before=7d": "not for a week",
    "before=30d": "not for 30 days",
}
"""Last activities to choose from."""

_AGENTS = 40


def routes(site: Site) -> list[BaseRoute]:
    """The routes of this module."""

    def page(show: Callable[[Site, Request], Response]) -> Callable[[Request], Response]:
        return lambda request: show(site, request)

    site.templates.filters["agent_tree"] = agent_tree
    return [
        Route("/", page(all_runs)),
        Route("/-/many", page(confirm)),
        Route("/-/act/many", page(many), methods=["POST"]),
        Route(STOP_ALL, page(confirm_stop), methods=["GET"]),
        Route("/-/act/stop-all", page(stop_all), methods=["POST"]),
    ]


class ListQuery(Struct, frozen=True):
    """What a person wants to see of the list, and which page of it."""

    wanted: RunQuery
    number: int = 1

    @classmethod
    def of(cls, given: Iterable[tuple[str, str]]) -> ListQuery:
        """UsageError for a state, an order, a cost or a time that is none."""
        many = [*given]
        one = {name: value.strip()[:200] for name, value in many}
        states = [value for name, value in many if name == "state" and value]
        age = dict([one.get("age", "").split("=", 1)]) if "=" in one.get("age", "") else {}
        number = one.get("page", "1")
        return cls(
            RunQuery(
                text=one.get("q", ""),
                states=tuple(dict.fromkeys(each for each in states if each != WANTED)),
                wanted=WANTED in states,
                agent=one.get("agent", ""),
                usd=_dollars(one.get("usd", "")),
                since=one.get("since", "") or age.get("since", ""),
                before=one.get("before", "") or age.get("before", ""),
                sort=one.get("sort", "") or BY_NEED,
            ),
            min(int(number), 1_000_000) if number.isascii() and number.isdecimal() and len(number) < 7 else 1,
        )

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The query of its URL, as short as it can be."""
        asked = self.wanted
        found = [
            ("q", asked.text),
            *(("state", each) for each in asked.states),
            ("state", WANTED if asked.wanted else ""),
            ("agent", asked.agent),
            ("usd", f"{asked.usd:g}" if asked.usd else ""),
            ("since", asked.since),
            ("before", asked.before),
            ("sort", asked.sort if asked.sort != BY_NEED else ""),
            ("page", str(self.number) if self.number > 1 else ""),
        ]
        return [each for each in found if each[1]]

    @property
    def url(self) -> str:
        return f"/?{urlencode(self.fields)}" if self.fields else "/"

    @property
    def key(self) -> str:
        """Another one for another query, as part of an id in HTML."""
        return f"{crc32(self.url.encode()):08x}"

    @property
    def age(self) -> str:
        """The last activity as the form has it."""
        asked = self.wanted
        return f"since={asked.since}" if asked.since else f"before={asked.before}" if asked.before else ""

    @property
    def filters(self) -> int:
        """How many of the fields that are folded away say something."""
        asked = self.wanted
        return sum(map(bool, (asked.agent, asked.usd, asked.since, asked.before, asked.sort != BY_NEED)))

    @property
    def without_filters(self) -> str:
        """The URL of the list without what is folded away."""
        asked = self.wanted
        return ListQuery(RunQuery(asked.text, asked.states, asked.wanted, sort=BY_NEED)).url

    def to(self, number: int) -> str:
        """The URL of another page."""
        return replace(self, number=number).url

    def of_state(self, state: str = "") -> str:
        """The URL of the same list of one state; of all without."""
        states = (state,) if state and state != WANTED else ()
        return ListQuery(replace(self.wanted, states=states, wanted=state == WANTED)).url

    def by(self, order: str) -> str:
        """The URL of the same list in another order; the other way round if it is this one already."""
        return ListQuery(replace(self.wanted, sort=f"-{order}" if self.wanted.sort == order else order)).url

    def direction(self, order: str) -> str:
        """How a column is sorted, for `aria-sort`. Empty: the list is in another order."""
        sort = self.wanted.sort
        if sort.removeprefix("-") != order:
            return ""
        return "descending" if ORDERS[order].descending != (sort != order) else "ascending"


def _dollars(typed: str) -> float:
    try:
        found = float(typed or 0)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e12:
        raise UsageError(f"{typed[:40]!r} is no number of dollars", remedy="write one such as 0.5")
    return found


class Listed(Struct, frozen=True):
    """A page of the list of runs. `total`: all; `matching`: those that match whatever their state, and `counts`, by
    state; `asked`: those of the state that is asked for, too."""

    runs: list[SeenRun]
    total: int
    matching: int
    counts: list[tuple[State, int]]
    wanted: int
    asked: int
    number: int
    pages: int
    agents: list[str]


def listed(seen: Seen, query: ListQuery) -> Listed:
    """The runs that a query asks for, with how many there are of each state."""
    asked = query.wanted
    found = replace(asked, states=(), wanted=False).of(seen.runs)
    counts = Counter[str](run.status.state for run in found)
    needing = [run for run in found if run.status.needs_person]
    matching = len(found)
    if asked.wanted:
        found = needing
    if asked.states:
        found = [run for run in found if run.status.state in asked.states]
    pages = max(1, -(-len(found) // PAGE))
    number = min(max(1, query.number), pages)
    agents = Counter(agent_of(run.status) for run in seen.runs)
    return Listed(
        found[(number - 1) * PAGE : number * PAGE],
        len(seen.runs),
        matching,
        [(state, counts[state]) for state in STATES if counts[state]],
        len(needing),
        len(found),
        number,
        pages,
        sorted(each for each, _ in agents.most_common(_AGENTS) if each),
    )


def list_facts(site: Site, request: Request) -> dict[str, Any]:
    """What list.html and runs.html show. `seen` is None before anything is read."""
    query, seen = ListQuery.of(request.query_params.multi_items()), site.runs()
    return {
        "seen": seen,
        "query": query,
        "listed": listed(seen, query) if seen else None,
        "orders": ORDERS,
        "costs": COSTS,
        "ages": AGES,
    }


def all_runs(site: Site, request: Request) -> Response:
    """The list. For htmx, which asks while a person types, only its rows. A form sends its empty fields, too: the
    address that a person copies has none."""
    given = request.query_params.multi_items()
    query = ListQuery.of(given)
    if request.headers.get("hx-request-type") == "partial":
        shown = site.page(request, "runs.html", **list_facts(site, request))
        shown.headers["hx-replace-url"] = query.url
        return shown
    if any(not value or name == "age" for name, value in given):
        return RedirectResponse(query.url, 303)
    return site.page(request, "list.html", **list_facts(site, request))


class AgentNode(NamedTuple):
    """A sub-agent, and those that it has spawned."""

    agent: AgentLine
    children: list[AgentNode]


def agent_tree(moment: Moment, most: int) -> list[AgentNode]:
    """The first sub-agents of a run, each below its parent."""
    levels = [list[AgentNode]()]
    for each in islice(agent_lines(moment), most):
        node = AgentNode(each, [])
        levels[each.depth].append(node)
        levels[each.depth + 1 :] = [node.children]
    return levels[0]


# Acts on many


class ManyAct(NamedTuple):
    """What can be done to each of several runs. `most`: so many at a time. Of `idle` states it would do nothing."""

    title: str
    says: str
    do: Callable[[Handle, str], Note]
    reason: str = ""
    most: int = 1_000
    idle: tuple[State, ...] = ()
    is_danger: bool = False


def _pause(handle: Handle, reason: str) -> Note:
    return Note((handle.pause(reason=reason or "manual").said,))


def _cancel(handle: Handle, reason: str) -> Note:
    return Note((handle.cancel(reason=reason or "cancelled").said,))


def _prune(handle: Handle, reason: str) -> Note:
    done = handle.prune()
    removed = sum(done.files.values())
    return Note((f"removed {counted(removed, 'file')}, {size(done.bytes)}" if removed else "had nothing to remove",))


MANY = {
    "pause": ManyAct(
        "Pause",
        "Each stops at its next safe point, between two steps. Running work finishes.",
        _pause,
        "manual",
        idle=("completed", "cancelled", "held", "moved", "damaged", "backup"),
    ),
    "resume": ManyAct(
        "Resume",
        "Each continues in the background, in a process of its own on the machine of this page. This ends a pause, "
        "whatever its reason. One that has never begun starts. For more runs at once use `satchel serve`.",
        lambda handle, reason: go_on(handle),
        most=20,
        idle=("running", "cancelled", "held", "moved", "damaged", "backup"),
    ),
    "cancel": ManyAct(
        "Cancel",
        "Each ends for good at its next safe point, and can't be resumed. Its files stay.",
        _cancel,
        "cancelled",
        idle=("completed", "cancelled", "held", "moved", "damaged", "backup"),
        is_danger=True,
    ),
    "prune": ManyAct(
        "Prune",
        "Removes the history that `keep:` in the workspace.yaml of each no longer keeps. Effects, questions, answers, "
        "edits and the conversation stay. An active run does this by itself, and is left alone.",
        _prune,
        idle=("running", "draining", "held", "moved", "damaged", "backup", "new"),
        is_danger=True,
    ),
}

_NAMED = 100
"""Runs that are named before an act, and outcomes of each kind after it."""


def _act_of(name: str) -> ManyAct:
    if name not in MANY:
        raise UsageError(f"{name[:40]!r} is nothing that is done to many runs", remedy="go back to the list")
    return MANY[name]


def confirm(site: Site, request: Request) -> Response:
    """What an act will do, and to which runs: those that are ticked, or all that the list asks for."""
    given = request.query_params.multi_items()
    query = ListQuery.of(each for each in given if each[0] not in ("run", "do", "all"))
    name = request.query_params.get("do", "")
    seen = site.runs(patience=None)
    if "all" in request.query_params:
        names = [site.name_of(run) for run in query.wanted.of(seen.runs if seen else ())]
    else:
        names = [value for field, value in given if field == "run"]
    if name == "compare":
        return _compare(site, names)
    return _confirm(site, request, name, names, query.url)


def _compare(site: Site, names: list[str]) -> Response:
    """The one that was active last is the second side, as what is newer is elsewhere."""
    if len(names := [*dict.fromkeys(names)]) != 2:
        raise UsageError(f"{counted(len(names), 'run')} can't be compared", remedy="go back, and tick two in the list")
    runs = sorted((site.find(each) for each in names), key=lambda run: run.status.at)
    old, new = map(site.name_of, runs)
    return RedirectResponse(f"{run_url(old, 'diff')}?{urlencode({'run': new})}", 303)


def _confirm(
    site: Site,
    request: Request,
    name: str,
    names: list[str],
    back: str,
    error: SatchelError | None = None,
    typed: Mapping[str, str] | None = None,
) -> Response:
    act, seen = _act_of(name), site.overview.seen
    known = {site.name_of(run): run for run in (seen.runs if seen else ())}
    runs = [known[each] for each in dict.fromkeys(names) if each in known]
    idle = [run for run in runs if run.status.state in act.idle]
    doing = [run for run in runs if run.status.state not in act.idle]
    if len(doing) > act.most:
        error = UsageError(f"these are {counted(len(doing), 'run')}", remedy=f"choose {act.most:,} or fewer at a time")
    return site.page(
        request,
        "many.html",
        422 if error else 200,
        name=name,
        act=act,
        doing=doing,
        idle=idle,
        gone=len(dict.fromkeys(names)) - len(runs),
        names=json.dumps([site.name_of(run) for run in doing]),
        back=back,
        error=error,
        typed=typed or {},
        most=_NAMED,
    )


def many(site: Site, request: Request) -> Response:
    """Do it to each of the runs, and tell in the list what became of each."""
    typed = dict(request.state.form)
    name, back = typed.get("do", ""), _inside_list(typed.get("back", ""))
    act, names = _act_of(name), _names(typed.get("runs", ""))
    if not names or len(names) > act.most:
        return _confirm(site, request, name, names, back, UsageError("no run is chosen"), typed)
    reason, notes = typed.get("reason", "").strip(), dict[str, Note]()
    for each in names:
        notes[each] = _done(site, act, each, reason)
    site.runs(patience=None, now=not site.overview.is_remote)  # the list that follows shall show them as they are
    note = site.notes.keep(Note(tuple(_told(act, notes)), any(each.is_bad for each in notes.values())))
    return RedirectResponse(f"{back}{'&' if '?' in back else '?'}note={note}", 303)


def _done(site: Site, act: ManyAct, name: str, reason: str) -> Note:
    try:
        return act.do(site.handle(site.find(name)), reason)
    except SatchelError as error:
        return Note((str(error),), is_bad=True)
    except Exception as error:  # whatever it is, the others shall not be left in the dark
        return Note((f"{type(error).__name__}: {error}",), is_bad=True)


def _told(act: ManyAct, notes: Mapping[str, Note]) -> list[str]:
    """A line about all, and one for each, those that failed first."""
    bad = {name: note for name, note in notes.items() if note.is_bad}
    good = {name: note for name, note in notes.items() if not note.is_bad}
    failed = f"{len(bad):,} failed; " if bad else ""
    lines = [f"{act.title} of {counted(len(notes), 'run')}: {failed}{len(good):,} done."]
    for found in (bad, good):
        shown = [*found.items()][:_NAMED]
        lines += [f"{name}: {' '.join(note.lines).removesuffix('.')}." for name, note in shown]
        lines += [f"And {len(found) - _NAMED:,} more."] if len(found) > _NAMED else []
    return lines


def _names(sent: str) -> list[str]:
    """The runs of the form."""
    try:
        found = json.loads(sent)
    except (ValueError, RecursionError):
        return []
    return [*dict.fromkeys(each for each in found if isinstance(each, str))] if isinstance(found, list) else []


def _inside_list(back: str) -> str:
    """A view of the list, as the form has brought it."""
    try:
        return ListQuery.of(parse_qsl(back.partition("?")[2])).url
    except SatchelError:
        return "/"


# The emergency stop

STOP_ALL = "/-/stop-all"

_NAMED_ACTIVE = 40
"""Active runs that the page names before it kills them."""

_IDLE = 500
"""Runs without a process that are named afterwards, one a line. All the others are."""


def confirm_stop(site: Site, request: Request) -> Response:
    """What will be killed, and the form. After a stop also what became of each run."""
    return site.page(request, "stop_all.html", **_stop_facts(site))


def stop_all(site: Site, request: Request) -> Response:
    """Kill what runs below the root, as `satchel stop --all` does: found now, not from the last look of the list."""
    typed = dict(request.state.form)
    try:
        places = api.open_all(site.overview.url)
        stopped = api.stop_all(places, reason=typed.get("reason", "").strip() or "emergency")
    except SatchelError as error:
        return site.page(request, "stop_all.html", 422, typed=typed, error=error, **_stop_facts(site))
    is_bad = any(each.how == "failed" for each in stopped)
    site.runs(patience=None, now=not site.overview.is_remote)  # the page that follows shall not name what is dead
    note = site.notes.keep(Note(tuple(_outcomes(site, stopped)), is_bad))
    return RedirectResponse(f"{STOP_ALL}?note={note}", 303)


def _outcomes(site: Site, stopped: list[StopResult]) -> list[str]:
    """A line about all, and one for each run."""
    if not stopped:
        return ["There is no run to stop."]
    rest = max(0, sum(each.how == "idle" for each in stopped) - _IDLE)
    begun = [each for each in stopped if each.how != "new"]
    shown = sorted(begun, key=lambda each: [*STOPS].index(each.how))[: len(begun) - rest]
    lines = [f"Of {counted(len(stopped), 'run')}: {stop_counts(stopped)}."]
    lines += [f"{site.name_at(each.url)}: {describe_stop(each)}." for each in shown]
    return [*lines, f"And {rest} more that were not running."] if rest else lines


def _stop_facts(site: Site) -> dict[str, Any]:
    """The runs that a process runs, by name, and how many there are. `seen` is None until the first look has
    read all."""
    seen = site.runs()
    seen = seen if seen and not seen.unread else None
    runs = seen.runs if seen else []
    active = [site.name_of(run) for run in runs if run.status.holder is not None]
    return {"seen": seen, "active": active, "named": active[:_NAMED_ACTIVE], "others": len(runs) - len(active)}
