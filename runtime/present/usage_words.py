"""What a run has used, for people and as JSON. Time: its records in words, each with the time that it, or the item that
it ends, has taken; and the run drawn as rows of marks on an axis, for SVG and for a terminal. Money and tokens: tables
with bars by step, model, item and call, the budget, and how the sum has grown.

The axis leaves out most of each long time in which nothing worked, so that a pause of two days does not hide the work.
Marks that would lie on each other are drawn as one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from ...workspace.base import counted, cut, duration, moment_of, one_line, time_text, usd
from ...workspace.history import CallSpan, Cost, CostReport, GapKind, ItemCost, ItemSpan, PartKind, RunTiming, TimeGap
from ...workspace.journal import (
    ApprovalAnswered,
    Line,
    OfCall,
    PartialPromoted,
    Resolved,
    ScopeBegun,
    ScopeCommitted,
    ScopeFailed,
    StepCompleted,
    StepFailed,
)
from ...workspace.state import Tone, folder_of_agent
from ...workspace.views import RecordWords, describe_record, place_words
from ..live import Share
from .value_words import call_json, call_name, describe_ms


class TimelineEvent(Struct, frozen=True):
    """A record in words, without its time and its outputs, which a face shows apart: `took` in milliseconds (None: not
    known), and the `files` of the workspace that it is about. `of_call`: it is about a call, which can be shown."""

    seq: int
    at: str
    words: RecordWords
    took: int | None
    files: tuple[str, ...]
    of_call: bool = False


class Timeline:
    """Puts records into words in their order. The title of an ended item, and how long it took, are known if its
    beginning was among them."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str], tuple[str, str]] = {}  # the time and the title

    def of(self, line: Line) -> TimelineEvent:
        record, took, files = line.record, None, tuple[str, ...]()
        title = place = ""
        match record:
            case StepCompleted() | StepFailed():
                took, record = record.ms, replace(record, ms=0)
            case ScopeBegun():
                self._begun.setdefault((record.agent, record.scope), (line.at, record.title))
            case ScopeFailed() | ScopeCommitted():
                began, title = self._begun.pop((record.agent, record.scope), ("", ""))
                place = place_words(record.agent, record.scope)
                first, last = moment_of(began), moment_of(line.at)
                took = round((last - first).total_seconds() * 1000) if first and last else None
        match record:
            case ScopeCommitted():
                files = tuple(folder_of_agent(record.agent) + f"outputs/{name}" for name in record.outputs)
                record = replace(record, outputs={})
            case PartialPromoted():
                files = (record.file,)
        words = describe_record(record)
        if title:
            did = words.text.removeprefix(place)
            words = words._replace(text=f"{place}  {title}{f': {did.strip()}' if did.startswith(' ') else did}")
        is_question = isinstance(record, ApprovalAnswered | Resolved)
        return TimelineEvent(line.seq, line.at, words, took, files, is_question or isinstance(record, OfCall))


# The time, drawn

PARTS: dict[PartKind, tuple[str, str, Tone]] = {
    "work": ("█", "worked", "active"),
    "failed": ("x", "failed", "bad"),
    "retry": ("~", "waited to be tried again", "hold"),
    "limit": ("%", "waited for a rate limit", "hold"),
    "person": ("?", "waited for a person", "ask"),
    "sleep": ("z", "slept", "rest"),
}
"""Of each part of a call: its sign in a terminal, its words, its tone. A later one is drawn over an earlier one."""

GAPS: dict[GapKind, str] = {
    "paused": "paused",
    "waiting": "waited for a person",
    "sleeping": "slept",
    "crashed": "crashed",
    "stopped": "stopped",
}

TOGETHER = 60
"""Up to so many calls, each has a row of its own; of more, an item has one."""

_SHORT = 0.03
"""The part of the axis that a shortened time has."""

_CUTS = 8
"""Times that the axis shortens: the longest."""

_LONG = 0.25
"""A time in which nothing worked is shortened if it is longer than such a part of the others."""

_SHORTEST = 1000
"""Milliseconds in which nothing worked that are never shortened."""

_LAYERS = 3
"""Calls at the same time that are drawn above each other in the row of an item."""


class Axis:
    """Where a time is: 0.0 is the left end, 1.0 the right one."""

    def __init__(self, begin: int, end: int, busy: Iterable[tuple[int, int]]):
        """`busy`: times in which something worked."""
        span = max(1, end - begin)
        dead = [*_between(sorted(busy), begin, end)]
        live = span - sum(last - first for first, last in dead)
        longest = sorted(dead, key=lambda one: one[0] - one[1])[:_CUTS]
        self.cuts = sorted(one for one in longest if one[1] - one[0] > max(span * _SHORT, live * _LONG, _SHORTEST))
        if sum(last - first for first, last in self.cuts) >= span:
            self.cuts = []
        left = span - sum(last - first for first, last in self.cuts)
        of_work = 1.0 - _SHORT * len(self.cuts)
        self._times, self._places = [begin], [0.0]
        for first, last in self.cuts:
            for time, share in ((first, (first - self._times[-1]) / left * of_work), (last, _SHORT)):
                self._times.append(time)
                self._places.append(self._places[-1] + share)
        self._times.append(max(end, begin + 1))
        self._places.append(1.0)
        self.begin, self.end = begin, end

    def at(self, time: int) -> float:
        if time <= self.begin:
            return 0.0
        if time >= self._times[-1]:
            return 1.0
        n = bisect_right(self._times, time) - 1
        first, last = self._times[n], self._times[n + 1]
        return self._places[n] + (self._places[n + 1] - self._places[n]) * (time - first) / max(1, last - first)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Places with how long after the beginning they are, at round times. None is in a shortened gap."""
        work = self.end - self.begin - sum(last - first for first, last in self.cuts)
        step = next((each for each in _STEPS if work / each <= most), _STEPS[-1] * max(1, work // _STEPS[-1] // most))
        found = [(0.0, "0")]
        time = self.begin
        while (time := time + step) < self.end:
            within = next((last for first, last in self.cuts if first <= time < last), None)
            if within is not None:
                time = self.begin + (within - self.begin) // step * step
            elif (at := self.at(time)) - found[-1][0] > 0.5 / most and at < 1 - 0.3 / most:
                ms = time - self.begin
                found.append((at, f"{ms} ms" if step < 100 else duration(ms / 1000)))
        return found


def _between(busy: Sequence[tuple[int, int]], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The times between those that are busy."""
    at = begin
    for first, last in busy:
        if first > at:
            yield at, min(first, end)
        at = max(at, last)
        if at >= end:
            return
    yield at, end


_STEPS = [
    unit * number
    for unit, numbers in (
        (1, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1000, (1, 2, 5, 10, 30)),
        (60_000, (1, 2, 5, 10, 30)),
        (3_600_000, (1, 2, 6, 12)),
        (86_400_000, (1, 2, 7, 30, 100, 365)),
    )
    for number in numbers
]
"""Round times in milliseconds."""


class LaneMark(NamedTuple):
    """Something to draw: from `x` on, `width` wide, in parts of the axis. Of so many `calls`, `span` is the first."""

    x: float
    width: float
    kind: PartKind | None  # None: the whole time of a call, below its parts
    span: CallSpan
    ms: int = 0
    calls: int = 1


class TimeRow(Struct, frozen=True):
    """A row of a drawing: an item (`call` is None), or a call. `layers`: marks above each other."""

    item: ItemSpan
    call: CallSpan | None
    layers: list[list[LaneMark]]

    @property
    def label(self) -> str:
        if self.call is not None:
            return call_name(self.call.call)
        place = place_words(self.item.agent, self.item.scope)
        return f"{place}  {one_line(self.item.title)}" if self.item.title else place

    @property
    def waits(self) -> str:
        """`2 attempts failed, waited 0.4 s for a rate limit`; empty of most calls."""
        parts = self.call.parts if self.call else ()
        failed = sum(each.kind == "failed" for each in parts)
        said = [f"{counted(failed, 'attempt')} failed"] * bool(failed)
        for kind, (_, words, _) in PARTS.items():
            ms = sum(each.end - each.begin for each in parts if each.kind == kind)
            if ms and kind in ("retry", "limit", "person"):
                said.append(words.replace("waited", f"waited {describe_ms(ms)}"))
        return ", ".join(said)

    @property
    def depth(self) -> int:
        return (len(self.item.agent.split("/")) if self.item.agent else 0) + (self.call is not None)

    @property
    def ms(self) -> int:
        span = self.call or self.item
        return span.end - span.begin


class TimeDrawing(Struct, frozen=True):
    """Rows below an axis. `before` and `after`: so many rows of the same kind come before and after them."""

    axis: Axis
    rows: list[TimeRow]
    before: int = 0
    after: int = 0


def draw(timing: RunTiming, *, cells: int, longest: bool = False, begin: int = 0, most: int = 0) -> TimeDrawing:
    """The rows `begin` and on, `most` at most (0: all). `longest`: these first. `cells`: marks in a layer, at most."""
    items, is_one = timing.items, len(timing.items) == 1
    each_call = is_one or sum(len(each.calls) for each in items) <= TOGETHER
    found: list[tuple[ItemSpan, CallSpan | None]] = []
    for item in items:
        found += [(item, None)] * (not (is_one or (longest and each_call)))
        found += [(item, call) for call in item.calls] if each_call else []
    if longest:
        found.sort(key=lambda one: (one[1] or one[0]).begin - (one[1] or one[0]).end)
    shown = found[begin : begin + most] if most else found[begin:]
    spans = [call or item for item, call in shown]
    first, last = min((each.begin for each in spans), default=0), max((each.end for each in spans), default=1)
    axis = Axis(first, last, _busy(items))
    rows = [TimeRow(item, call, _layers([call] if call else item.calls, axis, cells)) for item, call in shown]
    return TimeDrawing(axis, rows, begin, len(found) - begin - len(shown))


def _busy(items: Iterable[ItemSpan]) -> Iterator[tuple[int, int]]:
    """The times in which something worked, or waited to be tried again."""
    for item in items:
        for call in item.calls:
            yield call.begin, call.begin
            yield from ((each.begin, each.end) for each in call.parts if each.kind not in ("person", "sleep"))


def _layers(calls: Sequence[CallSpan], axis: Axis, cells: int) -> list[list[LaneMark]]:
    """Calls that run at the same time are in different layers, as far as there are layers."""
    ends: list[int] = []
    layers: list[list[LaneMark]] = []
    for call in calls:
        n = next((n for n, end in enumerate(ends) if end <= call.begin), len(ends))
        if n == len(ends) and n < _LAYERS:
            ends.append(0)
            layers.append([])
        n = min(n, _LAYERS - 1)
        ends[n] = max(ends[n], call.end)
        layers[n] += _marks(call, axis, 1 / cells)
    return [layer if len(layer) <= cells else [*_joined(raster(layer, cells))] for layer in layers]


def _marks(call: CallSpan, axis: Axis, least: float) -> Iterator[LaneMark]:
    x = axis.at(call.begin)
    width = axis.at(call.end) - x
    if not call.parts or (width > least and (call.parts[0].begin, call.parts[-1].end) != (call.begin, call.end)):
        yield LaneMark(x, width, None, call, call.end - call.begin)
    for part in call.parts:
        x = axis.at(part.begin)
        yield LaneMark(x, axis.at(part.end) - x, part.kind, call, part.end - part.begin)


_ORDER: dict[PartKind | None, int] = {kind: number for number, kind in enumerate((None, *PARTS))}


def raster(marks: Iterable[LaneMark], cells: int) -> list[LaneMark | None]:
    """What is to be seen in each of so many cells: a failure or a wait rather than work. `calls`: those that begin in
    it."""
    found: list[LaneMark | None] = [None] * cells
    last: CallSpan | None = None
    for mark in marks:
        first = min(cells - 1, int(mark.x * cells))
        begins, last = mark.span is not last, mark.span
        for at in range(first, max(first + 1, min(cells, round((mark.x + mark.width) * cells)))):
            known = found[at]
            calls = (known.calls if known else 0) + (begins and at == first)
            seen = mark if known is None or _ORDER[mark.kind] > _ORDER[known.kind] else known
            found[at] = seen._replace(x=at / cells, width=1 / cells, calls=calls)
    return found


def _joined(found: Iterable[LaneMark | None]) -> Iterator[LaneMark]:
    """Neighbours that show the same call, or of which both show several, become one mark."""
    last: LaneMark | None = None
    for mark in found:
        if last and mark and mark.kind == last.kind and (mark.span is last.span or mark.calls > 1 < last.calls):
            last = last._replace(width=mark.x + mark.width - last.x, calls=last.calls + mark.calls)
            continue
        if last:
            yield last
        last = mark
    if last:
        yield last


def mark_line(mark: LaneMark) -> str:
    """`^3/2 ask("tides"): waited for a rate limit, 0.4 s`, or `12 calls from ^3/2 on`."""
    if mark.calls > 1:
        return f"{mark.calls:,} calls from {mark.span.name} on"
    did = PARTS[mark.kind][1] if mark.kind else "from its beginning to its end"
    return f"{mark.span.name} {call_name(mark.span.call, 60)}: {did}, {describe_ms(mark.ms)}"


# In a terminal, and as JSON

Piece = tuple[str, Tone | None]
"""A part of a line, with its tone."""

_LABEL = 36  # columns of the labels at most
_TOOK = 12
_NARROWEST = 20


def timing_lines(timing: RunTiming, width: int = 0) -> Iterator[list[Piece]]:
    """The drawing in lines of `width` columns (0: 100)."""
    width = width or 100
    label = min(_LABEL, width // 3)
    cells = max(_NARROWEST, width - label - _TOOK - 2)
    drawing = draw(timing, cells=cells)
    if not drawing.rows:
        yield [("no call is on record", None)]
        return
    yield [(" " * (label + 1) + _scale(drawing.axis, cells), "rest")]
    cuts = {min(cells - 1, int(drawing.axis.at(first) * cells)) for first, _ in drawing.axis.cuts}
    for row in drawing.rows:
        said = cut("  " * row.depth + row.label, label)
        marks = raster((mark for layer in row.layers for mark in layer), cells)
        took = describe_ms(row.ms)
        tone: Tone | None = "bad" if row.call and row.call.call.state == "failed" else None
        yield [(f"{said:<{label}} ", tone), *_signs(marks, cuts), (f" {took:>{_TOOK - 1}}", "rest")]
    seen = {part.kind for item in timing.items for call in item.calls for part in call.parts}
    legend = [f"{sign} {words}" for kind, (sign, words, _) in PARTS.items() if kind in seen]
    legend += ["· nothing recorded"] + ["¦ nothing worked, drawn shorter"] * bool(drawing.axis.cuts)
    yield [("  ".join(legend), "rest")]
    for gap in timing.gaps[:_LISTED]:
        yield [(gap_line(gap), "rest")]
    if len(timing.gaps) > _LISTED:
        yield [(f"and {counted(len(timing.gaps) - _LISTED, 'more gap')}", "rest")]


_LISTED = 12
"""Gaps that are listed."""


def _scale(axis: Axis, cells: int) -> str:
    line = ""
    for x, said in axis.ticks(max(2, cells // 14)):
        at = int(x * cells)
        line = f"{line:<{at}}|{said} " if at >= len(line) else line
    return line.rstrip()[:cells]


def _signs(marks: Sequence[LaneMark | None], cuts: set[int]) -> Iterator[Piece]:
    text = ""
    tone: Tone | None = None
    for at, mark in enumerate(marks):
        sign = " "
        own: Tone | None = None
        if at in cuts:
            sign, own = "¦", "rest"
        elif mark is not None:
            sign, _, own = PARTS[mark.kind] if mark.kind else ("·", "", "rest")
        if own != tone and text:
            yield text, tone
            text = ""
        text, tone = text + sign, own
    yield text, tone


def gap_line(gap: TimeGap) -> str:
    """`2026-11-29 03:10:09 UTC: paused for 2 h 10 min: lunch, by ada`."""
    why = f": {one_line(gap.why, 120)}" if gap.why else ""
    begin = datetime.fromtimestamp(gap.begin // 1000, UTC)
    return f"{begin:%Y-%m-%d %H:%M:%S} UTC: {GAPS[gap.kind]} for {duration((gap.end - gap.begin) / 1000)}{why}"


def timing_json(timing: RunTiming) -> dict[str, Any]:
    """All items and calls, with their times as UTC."""
    return {
        "begin": _utc(timing.begin),
        "end": _utc(timing.end),
        "since": timing.since,
        "untimed": timing.untimed,
        "problem": str(timing.problem) if timing.problem else "",
        "gaps": [_timed(each) for each in timing.gaps],
        "items": [_timed(each) | {"calls": [*map(_call_json, each.calls)]} for each in timing.items],
    }


def _call_json(span: CallSpan) -> dict[str, Any]:
    said = {name: each for name, each in call_json(span.call).items() if name in _CALL_KEYS}
    return {"name": span.name} | said | _timed(span) | {"parts": [_timed(each) for each in span.parts]}


_CALL_KEYS = ("no", "step", "call", "effect", "state", "seq", "how", "model")


def _timed(found: Any) -> dict[str, Any]:
    said = to_builtins(found) if not isinstance(found, CallSpan | ItemSpan) else {}
    if isinstance(found, ItemSpan):
        said = {name: getattr(found, name) for name in ("agent", "scope", "title", "state")}
        said["name"] = found.names[0]
    times = {"begin": _utc(found.begin), "end": _utc(found.end), "ms": found.end - found.begin}
    return said | times


def _utc(ms: int) -> str:
    return time_text(datetime.fromtimestamp(ms / 1000, UTC))


# What it has cost


_ROWS = 20  # of a table


class CostBar(NamedTuple):
    """A row: `share` is its part of the highest row, for a bar. `item` names its item, `seq` a record of its call."""

    name: str
    tokens: int
    output: int
    usd: float
    times: int
    share: float
    item: str = ""
    seq: int = 0


class CostTable(NamedTuple):
    """The highest costs of one kind. `rest`: those that are not shown, as one."""

    title: str
    rows: list[CostBar]
    rest: CostBar | None


_KINDS = (
    ("By step", "outside of all steps"),
    ("By model", "no model named"),
    ("By item", "outside of all items"),
    ("The dearest calls", ""),
)


def cost_tables(report: CostReport) -> list[CostTable]:
    """The tables that say something."""
    kinds: tuple[Sequence[Cost], ...] = (report.steps, report.models, report.items, report.calls)
    return [_table(title, nameless, costs) for (title, nameless), costs in zip(_KINDS, kinds, strict=True) if costs]


def _table(title: str, nameless: str, costs: Sequence[Cost]) -> CostTable:
    has_money = any(each.usd for each in costs)
    highest = max(each.usd if has_money else each.tokens for each in costs) or 1

    def row(cost: Cost) -> CostBar:
        share = (cost.usd if has_money else cost.tokens) / highest
        name, item, seq = cost.name or nameless, "", 0
        if isinstance(cost, ItemCost):
            name = "  ".join(filter(None, (name, one_line(cost.title), cost.step)))
            item, seq = ("" if cost.seq else cost.name), cost.seq
        return CostBar(name, cost.tokens, cost.output, cost.usd, cost.times, share, item, seq)

    rest = None
    if left := costs[_ROWS:]:
        sums = [sum(each) for each in zip(*((one.tokens, one.output, one.times) for one in left), strict=True)]
        money = round(sum(each.usd for each in left), 9)
        # No bar compares with one of all
        rest = CostBar(f"{len(left):,} others", sums[0], sums[1], money, sums[2], 0.0)
    return CostTable(title, [row(each) for each in costs[:_ROWS]], rest)


class CostCurve(NamedTuple):
    """The sum over time, as points from 0 to 1 in both directions, upwards. `limit`: how high the budget is; None: it
    is higher than ten times the sum, or there is none."""

    kind: str
    points: list[tuple[float, float]]
    limit: float | None
    total: str
    begin: str
    end: str


def cost_curve(report: CostReport, budget: Sequence[Share]) -> CostCurve | None:
    """How the money has grown; of a run without prices, the tokens. None without costs."""
    if not report.course:
        return None
    has_money = report.total.usd > 0
    kind = "usd" if has_money else "tokens"
    limit = next((share.limit for share in budget if share.kind == kind), None)
    highest = report.total.usd if has_money else report.total.tokens
    shown = limit is not None and limit <= 10 * highest
    top = max(highest, limit or 0 if shown else 0) * 1.04 or 1
    moments = [then.timestamp() if (then := moment_of(each.at)) else 0.0 for each in report.course]
    first, span = moments[0], max(0.001, moments[-1] - moments[0])
    points, height = [(0.0, 0.0)], 0.0
    for at, each in zip(moments, report.course, strict=True):
        x = (at - first) / span
        points += [(x, height), (x, height := (each.usd if has_money else each.tokens) / top)]
    points.append((1.0, height))  # also if all came at once
    total = usd(report.total.usd) if has_money else counted(report.total.tokens, "token")
    line = limit / top if limit is not None and shown else None
    return CostCurve(kind, points, line, total, report.course[0].at, report.course[-1].at)


_BAR = 24  # columns


def cost_lines(report: CostReport, budget: Sequence[Share], width: int = 0) -> Iterator[list[Piece]]:
    """The tables in lines of at most `width` columns (0: 100)."""
    width = width or 100
    total = report.total
    if not (total.tokens or total.usd):
        yield [("the run has reported no cost: an agent does with run.spend(usd=..., tokens=...)", None)]
        return
    yield [(f"{describe_cost(total)} in all", None)]
    if report.earlier.tokens or report.earlier.usd:
        yield [(f"{describe_cost(report.earlier)} of it before record {report.since:,}", "rest")]
    for share in budget:
        full = round(min(1.0, share.used / share.limit if share.limit else 1.0) * _BAR)
        tone: Tone = "bad" if share.is_used_up else "ask" if share.is_nearly else "good"
        yield [("budget  ", None), ("█" * full + "░" * (_BAR - full), tone), (f"  {share.words}", None)]
    name = max(16, min(48, width - _BAR - 44))
    for table in cost_tables(report):
        yield []
        yield [(f"{table.title:<{name}}  {'money':>10}  {'tokens':>12}  {'output':>10}", None)]
        for row in (*table.rows, *filter(None, [table.rest])):
            numbers = f"{usd(row.usd) if row.usd else '':>10}  {row.tokens:>12,}  {row.output:>10,}"
            bar = "█" * max(1, round(row.share * _BAR)) if row.share else ""
            yield [(f"{cut(row.name, name):<{name}}  {numbers}  ", None), (bar, "active")]


def describe_cost(cost: Cost) -> str:
    """`$1.20, 800 tokens`."""
    parts = [usd(cost.usd)] * bool(cost.usd) + [counted(cost.tokens, "token")] * bool(cost.tokens)
    return ", ".join(parts)


def cost_json(report: CostReport, budget: Sequence[Share]) -> dict[str, Any]:
    """All costs, and what is used of the budget."""
    said: dict[str, Any] = {
        name: to_builtins(getattr(report, name))
        for name in ("total", "earlier", "steps", "models", "items", "calls", "course", "since")
    }
    shares = [{"kind": each.kind, "used": each.used, "limit": each.limit} for each in budget]
    return said | {"budget": shares, "problem": str(report.problem) if report.problem else ""}
