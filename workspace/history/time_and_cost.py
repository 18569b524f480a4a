"""What the calls of a run took: when they worked and when they waited, by item, and when no process had the run; and
what they have cost (`run.spend`), by step, model, item and call.

Times are milliseconds since 1970, UTC.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..base import SatchelError, moment_of
from ..journal import (
    AnyRecord,
    ApprovalAnswered,
    ApprovalAsked,
    Closed,
    Doubt,
    Failure,
    Key,
    Line,
    OfCall,
    Opened,
    PauseRequested,
    Resolved,
    ScopeBegun,
    Spent,
    StepCompleted,
    StepFailed,
    StepProgress,
    StepRetry,
)
from ..state import ROOT, SLEEP
from .call_history import Call, StepHistory, Work, WorkState
from .call_records import call_place
from .moments import Story, named_so, names_of

PartKind = Literal["work", "failed", "retry", "limit", "person", "sleep"]
"""What a call did: an attempt that has returned, or that has failed; or it waited: to be tried again, because a server
has too many requests, for a person, or in `run.sleep`."""

GapKind = Literal["paused", "waiting", "sleeping", "crashed", "stopped"]
"""Why no process worked: a pause, a wait for a person, a sleep, a crash; or the run had stopped or failed."""


class CallPart(Struct, frozen=True, gc=False):
    """A part of a call's time."""

    kind: PartKind
    begin: int
    end: int


class CallSpan(Struct, frozen=True, gc=False):
    """A call in time. `name` is how to name it: `^3/2`. Between its parts it did nothing: no process had the run, or an
    earlier one has begun it. `is_over`: it has an outcome."""

    name: str
    call: Call
    begin: int
    end: int
    parts: tuple[CallPart, ...]

    @property
    def is_over(self) -> bool:
        return self.call.state in ("completed", "failed")


class RunningSpan(NamedTuple):
    """A call that a process is at, of which most have no record yet. `began` in words of a record (UTC, ISO 8601)."""

    agent: str
    scope: str
    call: Call
    began: str


class ItemSpan(Struct, frozen=True):
    """An item, a named scope, or what an agent does outside of all, with its calls in the order in which they began.
    `names`: how a person may name it, `_agent` outside of all."""

    agent: str
    scope: str
    names: tuple[str, ...]
    title: str
    state: WorkState
    begin: int
    end: int
    calls: tuple[CallSpan, ...]


class TimeGap(Struct, frozen=True):
    """A time in which no process did the run's work. `why` is in the words of who has stopped it."""

    kind: GapKind
    begin: int
    end: int
    why: str = ""


class RunTiming(Struct, frozen=True):
    """A run in time. `untimed`: so many items of which no record is kept, so that their times are not known."""

    begin: int
    end: int
    items: list[ItemSpan]
    gaps: list[TimeGap]
    untimed: int = 0
    since: int = 1
    problem: SatchelError | None = None

    def of(self, item: str) -> RunTiming:
        """The time of one item. UsageError if it has not begun."""
        return replace(self, items=named_so(item, self.items, self.since, self.problem))


def run_timing(found: StepHistory, told: Story, now: datetime, running: Sequence[RunningSpan]) -> RunTiming:
    """The time of the work in `found`; `told`: the records of the run. Of a run that waits, or has calls that are
    `running`, it goes to `now`."""
    lines = [line for line in told.lines if line.seq <= found.moment.seq]
    gaps = [*_gaps(lines)]
    end = max(map(_ms, (line.at for line in lines[-1:])), default=0)
    is_newest = not told.lines or told.lines[-1].seq == found.moment.seq
    waits, until = _STOPS.get(found.moment.status), max(end, int(now.timestamp() * 1000))
    if waits and found.moment.clean and is_newest:
        gaps.append(TimeGap(waits, end, until, _why(lines)))
        end = until
    if running:
        end = until
    notes = _notes(lines)
    items = [_item(work, notes, end, running) for work in found.work]
    timed = [each for each in items if each.begin]
    begin = min([*map(_ms, (line.at for line in lines[:1])), *(each.begin for each in timed)], default=end)
    gaps = [each for each in gaps if each.end > each.begin]
    return RunTiming(begin, end, timed, gaps, len(items) - len(timed), found.since, found.problem)


def _ms(at: str) -> int:
    """0 for what is no time."""
    then = moment_of(at)
    return int(then.timestamp() * 1000) if then else 0


# Gaps

_STOPS: dict[str, GapKind] = {"paused": "paused", "waiting": "waiting", "sleeping": "sleeping"}

_WORKS = ("run", "hold", "replay")
"""Why a process takes the run to do its work. Others take it for a moment, to record what a person has said."""


def _gaps(lines: Sequence[Line]) -> Iterator[TimeGap]:
    """From the end of each process that worked to the beginning of the next one."""
    gap: TimeGap | None = None
    kind: GapKind = "stopped"
    for at, line in enumerate(lines):
        match line.record:
            case Closed(status=status) if status:
                kind = _STOPS.get(status, "stopped")
            case Opened(found=found, why=why) if at:
                is_crash = found == "crash"
                begin, said = _ms(lines[at - 1].at), "" if is_crash else _why(lines[:at])
                gap = gap or TimeGap("crashed" if is_crash else kind, begin, 0, said)
                if why in _WORKS:
                    yield replace(gap, end=_ms(line.at))
                    gap = None


_BACK = 50
"""Records before the end of a process in which the reason of its pause is looked for."""


def _why(lines: Sequence[Line]) -> str:
    """The reason of the last stop."""
    for line in reversed(lines[-_BACK:]):
        match line.record:
            case PauseRequested(reason=reason, by=by):
                return f"{reason}, by {by}"
            case Closed(error=Failure(kind=kind, message=message)):
                return f"{kind}: {message}"
            case Closed(reason=reason) if reason:
                return reason
            case Opened():
                break
    return ""


# Calls

_Notes = dict[tuple[str, str, Key], list[Line]]


def _notes(lines: Iterable[Line]) -> _Notes:
    """The records of each call but the one of its result: most calls have none."""
    found: _Notes = {}
    asked: dict[str, list[Line]] = {}
    for line in lines:
        record = line.record
        match record:
            case StepCompleted():
                continue
            case ApprovalAnswered() | Resolved():
                if known := asked.get(record.id):
                    known.append(line)
            case OfCall():
                kept = found.setdefault((record.agent, record.scope, record.key), [])
                kept.append(line)
                if isinstance(record, ApprovalAsked | Doubt):
                    asked[record.id] = kept
    return found


def _item(work: Work, notes: _Notes, last: int, running: Iterable[RunningSpan]) -> ItemSpan:
    known = [*filter(None, (_span(call, work, notes, last) for call in work.calls))]
    if work.state == "open":
        known += _running(work, running, {each.call.no for each in known}, last)
    calls = sorted(_one_after_another(known), key=lambda each: each.call.no)
    times = [_ms(work.begun_at), *(call.begin for call in calls)]
    begin = min(filter(None, times), default=0)
    is_open = work.state == "open" and work.scope
    ends = [last if is_open and begin else _ms(work.ended_at) or begin, *(call.end for call in calls)]
    names = work.names if work.scope else (call_place(work.agent, ROOT, 0).rpartition("/")[0],)
    return ItemSpan(work.agent, work.scope, names, work.title, work.state, begin, max(ends), tuple(calls))


def _running(work: Work, running: Iterable[RunningSpan], known: Collection[int], now: int) -> Iterator[CallSpan]:
    for each in running:
        begin = min(_ms(each.began), now)
        if (each.agent, each.scope) == (work.agent, work.scope) and each.call.no not in known and begin:
            name = call_place(work.agent, work.scope, each.call.no)
            yield CallSpan(name, each.call, begin, now, (CallPart("work", begin, now),))


def _one_after_another(calls: Sequence[CallSpan]) -> Iterator[CallSpan]:
    """Calls whose times overlap only since a record has whole milliseconds follow each other."""
    end = 0
    for call in calls:
        if call.begin < end <= min(call.begin + _ROUNDED, call.end):
            parts = tuple(replace(each, begin=max(each.begin, end)) for each in call.parts if each.end >= end)
            call = replace(call, begin=end, parts=parts)
        yield call
        end = call.end


_ROUNDED = 2
"""Milliseconds by which two times may differ that are one."""


def _span(call: Call, work: Work, notes: _Notes, last: int) -> CallSpan | None:
    """None if no record tells when it was."""
    name = call_place(work.agent, work.scope, call.no)
    known = notes.get((work.agent, work.scope, call.key), [])
    lines = [each for each in known if work.begun <= each.seq and (not work.ended or each.seq <= work.ended)]
    at, ms = _ms(call.at), call.ms
    if not lines:
        kind: PartKind = "failed" if call.state == "failed" else "work"
        return CallSpan(name, call, at - ms, at, (CallPart(kind, at - ms, at),)) if at else None
    end = at if at and call.state in ("completed", "failed") else last
    if call.step == SLEEP and isinstance(lines[0].record, StepProgress):
        begin = _ms(lines[0].at)
        return CallSpan(name, call, begin, end, (CallPart("sleep", begin, end),))
    parts = [CallPart(each.kind, each.begin, min(each.end, end)) for each in _parts(lines, end)]
    begin = min(_ms(lines[0].at), *(each.begin for each in parts)) if parts else _ms(lines[0].at)
    if call.state == "completed" and ms:
        begin = min(begin, at - ms)
        before = max([at - ms, *(each.end for each in parts)])
        parts += [CallPart("work", before, end)] * (before < end)
    return CallSpan(name, call, begin, max(begin, end), tuple(parts))


def _parts(lines: Sequence[Line], end: int) -> Iterator[CallPart]:
    """The parts that the records of a call tell, in their order."""
    asked = 0
    for line in lines:
        at = _ms(line.at)
        match line.record:
            case StepFailed(ms=ms):
                yield CallPart("failed", at - ms, at)
            case StepRetry(wait=wait, limited=limited):
                yield CallPart("limit" if limited else "retry", at, at + int(wait * 1000))
            case ApprovalAsked() | Doubt():
                asked = at
            case ApprovalAnswered() | Resolved() if asked:
                yield CallPart("person", asked, at)
                asked = 0
    if asked:
        yield CallPart("person", asked, end)


_POINTS = 400
"""Points of the course at most."""


class Cost(Struct):
    """A part of the costs. `times`: how often the agent has reported a cost; `output`: the tokens that the models have
    written."""

    name: str = ""
    times: int = 0
    tokens: int = 0
    output: int = 0
    usd: float = 0.0

    def add(self, tokens: int, output: int, usd: float) -> None:
        self.times += 1
        self.tokens += tokens
        self.output += output
        self.usd = round(self.usd + usd, 9)


class ItemCost(Cost):
    """The cost of an item, or of a call: then `seq` is a record about it. `step` is the name of its step."""

    title: str = ""
    seq: int = 0
    step: str = ""


class CostPoint(Struct, frozen=True, gc=False):
    """The sum up to a time."""

    at: str
    tokens: int
    usd: float


class CostReport(Struct, frozen=True):
    """All costs of a run, the highest first. An empty name: outside of all steps, no model named, outside of all items.

    `total`: what counts for the budget, also what a return to an earlier record has undone. `earlier`: the part of it
    of which no record is kept, or that a fork has taken over.
    """

    total: Cost
    earlier: Cost
    steps: list[Cost]
    models: list[Cost]
    items: list[ItemCost]
    calls: list[ItemCost]
    course: list[CostPoint]
    since: int = 1
    problem: SatchelError | None = None


_Place = tuple[str, str]
"""An agent and a scope."""

C = TypeVar("C", bound=Cost)


class _Ledger:
    """Follows the records, and adds each cost to its step, its model, its item and its call. A step is known by its
    number in its item; the record that names it may come after the cost."""

    def __init__(self) -> None:
        self.steps: dict[str, Cost] = {}
        self.models: dict[str, Cost] = {}
        self.items: dict[_Place, ItemCost] = {}
        self.calls: list[ItemCost] = []
        self.total = Cost()
        self.course: list[CostPoint] = []
        self._named: dict[_Place, dict[int, str]] = {}  # the steps of each item by their numbers
        self._waiting: dict[_Place, dict[int, list[Spent]]] = {}  # costs of calls whose step is not known yet
        self._open: dict[_Place, dict[int, ItemCost]] = {}  # of `calls`, those of the item as it was begun last
        self._titles: dict[_Place, str] = {}

    def add(self, line: Line) -> None:
        record: AnyRecord = line.record
        match record:
            case Spent():
                self._spent(line, record)
            case ScopeBegun(agent=agent, scope=scope, title=title):
                self._titles[agent, scope] = title
                if scope != ROOT:
                    self._named.pop((agent, scope), None)
                    self._open.pop((agent, scope), None)
            case OfCall(agent=agent, scope=scope, no=no, step=step):
                self._named.setdefault((agent, scope), {})[no] = step
                model = record.model if isinstance(record, StepCompleted) else ""
                for spent in self._waiting.get((agent, scope), {}).pop(no, ()):
                    self._of_step(spent, step, model)

    def _spent(self, line: Line, record: Spent) -> None:
        place = record.agent, record.scope
        self.total.add(record.tokens, record.output, record.usd)
        self.course.append(CostPoint(line.at, self.total.tokens, self.total.usd))
        if place not in self.items:
            name = names_of(*place, "")[0] if record.scope else record.agent
            self.items[place] = ItemCost(name, title=self._titles.get(place, ""))
        self.items[place].add(record.tokens, record.output, record.usd)
        if record.no is None:
            self._of_step(record, "", "")
            return
        calls = self._open.setdefault(place, {})
        if (call := calls.get(record.no)) is None:
            call = calls[record.no] = ItemCost(call_place(*place, record.no), seq=line.seq)
            self.calls.append(call)
        call.add(record.tokens, record.output, record.usd)
        if (step := self._named.get(place, {}).get(record.no)) is not None:
            self._of_step(record, step, "")
        else:
            self._waiting.setdefault(place, {}).setdefault(record.no, []).append(record)

    def _of_step(self, spent: Spent, step: str, model: str) -> None:
        model = spent.model or model
        for costs, name in ((self.steps, step), (self.models, model)):
            costs.setdefault(name, Cost(name)).add(spent.tokens, spent.output, spent.usd)
        if spent.no is not None and (call := self._open.get((spent.agent, spent.scope), {}).get(spent.no)):
            call.step = step

    def finish(self) -> None:
        """Costs of calls that have no record, since a crash came before it."""
        for waiting in self._waiting.values():
            for spent in (each for costs in waiting.values() for each in costs):
                self._of_step(spent, "", "")
        self._waiting.clear()


def cost_report(found: StepHistory, told: Story) -> CostReport:
    """The costs up to the moment of `found`. `told`: the records of the run."""
    ledger = _Ledger()
    for line in told.lines:
        if line.seq > found.moment.seq:
            break
        ledger.add(line)
    ledger.finish()
    usage, own = found.moment.usage, ledger.total
    earlier = Cost("", 0, max(0, usage.tokens - own.tokens), 0, max(0.0, round(usage.usd - own.usd, 9)))
    total = Cost("", own.times, own.tokens + earlier.tokens, own.output, round(own.usd + earlier.usd, 9))
    return CostReport(
        total,
        earlier,
        _highest(ledger.steps.values()),
        _highest(ledger.models.values()),
        _highest(ledger.items.values()),
        _highest(ledger.calls),
        _course(ledger.course, earlier),
        found.since,
        found.problem,
    )


def _highest(costs: Iterable[C]) -> list[C]:
    return sorted(costs, key=lambda each: (-each.usd, -each.tokens))


def _course(points: list[CostPoint], earlier: Cost) -> list[CostPoint]:
    step = max(1, len(points) / _POINTS)
    chosen = [points[min(len(points) - 1, int((at + 1) * step) - 1)] for at in range(int(len(points) / step))]
    chosen += [each for each in points[-1:] if each not in chosen[-1:]]
    return [CostPoint(each.at, each.tokens + earlier.tokens, round(each.usd + earlier.usd, 9)) for each in chosen]
