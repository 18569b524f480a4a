"""Records, values and calls of a run's history, in lines that are safe to print and fit a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec
from msgspec.structs import asdict

from ...workspace.base import UsageError, lines, visible
from ...workspace.history import CallChange, DataChange, MessageChange, StepHistory
from ...workspace.journal import Line
from ..api import Difference, Handle
from ..present import (
    CHANGES,
    Piece,
    call_json,
    call_name,
    colour,
    cost_json,
    cost_lines,
    cut,
    describe_call,
    describe_record,
    json_line,
    one_line,
    place_words,
    timing_json,
    timing_lines,
)
from .output import columns, print_json, utc

INDENT = "  "
_SHORT = 60  # columns of a value in a line, away from a terminal
_LEAST = 12  # columns that it has at least
_LONG = 10_000  # characters of a result that are compared


def line(text: str, width: int, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
    """`text` in one line, cut to the width of the terminal."""
    shown = visible(text)
    if not shown.isprintable():
        shown = " ".join(shown.splitlines())
    shown = cut(shown, width) if width else shown
    return click.style(shown, fg=fg, bold=bold or None, dim=dim or None) if fg or bold or dim else shown


def plan_line(found: str, width: int) -> str:
    """A line of a unified diff."""
    return line(INDENT + found, width, fg={"+": "green", "-": "red", "@": "cyan"}.get(found[:1]))


def record(found: Line, width: int, *, is_dim: bool) -> str:
    """As in the log."""
    said = describe_record(found.record)
    text = f"{found.seq:>8}  {utc(found.at)}  {said.line}"
    return line(text, width, fg=None if is_dim else colour(said.tone), dim=is_dim)


def text(content: str, width: int) -> Iterator[str]:
    """A text of several lines."""
    for each in lines(content.removesuffix("\n")) if content else ():
        yield line(INDENT + each, width)


def value(found: Any, width: int) -> Iterator[str]:
    """JSON in several lines."""
    yield from text(json.dumps(found, indent=2, ensure_ascii=False), width)


_json = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` would make one for each of thousands of results


def data_change(change: DataChange, width: int) -> str:
    sign, tone = CHANGES[change.kind]
    name = f"{INDENT}{sign} {change.path or '/'}  "
    if change.kind == "changed":
        said = pair(_json(change.old), _json(change.new), _left(name, width))
    else:
        said = json_line(change.new if change.kind == "added" else change.old, _left(name, width) or _SHORT)
    return line(name + said, width, fg=colour(tone))


def message(seq: int, said: dict[str, Any], width: int) -> str:
    name = f"{INDENT}{seq:>6}  {said['role']}: "
    return line(name + _spoken(said, _left(name, width)), width)


def message_change(change: MessageChange, width: int) -> str:
    sign, tone = CHANGES[change.kind]
    said = change.new or change.old or {}
    name = f"{INDENT}{sign} {change.seq}  {said['role']}: "
    if change.old and change.new:
        room = _left(name, width)
        text = pair(_json(change.old["content"]), _json(change.new["content"]), room)
    else:
        text = _spoken(said, _left(name, width))
    return line(name + text, width, fg=colour(tone))


def _spoken(said: dict[str, Any], width: int) -> str:
    content = said["content"]
    return one_line(content, width or _SHORT) if isinstance(content, str) else json_line(content, width or _SHORT)


def call_change(change: CallChange, width: int) -> str:
    sign, tone = CHANGES[change.kind]
    found = change.new or change.old
    assert found is not None
    name = f"{INDENT}{sign} {place_words(change.agent, change.scope)}  {call_name(found, width // 2)}  "
    if change.old and change.new:
        said = pair(describe_call(change.old, _LONG), describe_call(change.new, _LONG), _left(name, width))
    else:
        said = describe_call(found, _left(name, width))
    return line(name + said, width, fg=colour(tone))


def pair(old: str, new: str, width: int) -> str:
    """Two texts in one line, both cut to the part where they begin to differ."""
    room = max(_LEAST, (width or 2 * _SHORT) // 2 - 2)
    common = next((at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), 0)
    start = common - room // 3 if common > room // 2 and max(len(old), len(new)) > room else 0
    head = "…" if start else ""
    return " -> ".join(one_line(head + each[start:], room) for each in (old, new))


def _left(name: str, width: int) -> int:
    """The columns after `name`; 0 away from a terminal."""
    return max(2 * _LEAST, width - len(name)) if width else 0


def as_json(found: Difference) -> dict[str, Any]:
    """With whole values."""
    return {
        "old": msgspec.to_builtins(found.old),
        "new": msgspec.to_builtins(found.new),
        "data": [data_json(change) for change in found.data],
        "plans": msgspec.to_builtins(found.plans),
        "calls": [_change_json(change) for change in found.calls],
        "messages": msgspec.to_builtins(found.messages),
        "files": msgspec.to_builtins(found.files),
    }


def data_json(change: DataChange) -> dict[str, Any]:
    sides = [name for name, without in (("old", "added"), ("new", "removed")) if change.kind != without]
    said = {"agent": change.agent, "path": change.path, "kind": change.kind}
    return said | {name: getattr(change, name) for name in sides}


def _change_json(change: CallChange) -> dict[str, Any]:
    said = {"agent": change.agent, "scope": change.scope, "title": change.title, "kind": change.kind}
    return said | {name: call_json(call) for name, call in (("old", change.old), ("new", change.new)) if call}


def work_as_json(found: StepHistory) -> dict[str, Any]:
    """With whole results."""
    work = [
        {name: each for name, each in asdict(work).items() if name != "calls"}
        | {"ms": work.ms, "calls": [*map(call_json, work.calls)]}
        for work in found.work
    ]
    problem = str(found.problem) if found.problem else ""
    return {"seq": found.moment.seq, "since": found.since, "problem": problem, "work": work}


def print_drawn(place: Handle, shown: str, item: Sequence[str], at: str | None, as_json: bool) -> None:
    """`satchel steps --timeline` and `--cost`."""
    width = columns(sys.stdout)
    found: dict[str, Any] | Iterator[list[Piece]]
    if shown == "timeline":
        timing = place.history.timing(*item, at=at)
        problem, found = timing.problem, timing_json(timing) if as_json else timing_lines(timing, width)
    elif item:
        raise UsageError("--cost is that of the whole run", remedy=f"leave out {item[0]}, and look at its row")
    else:
        costs, budget = place.history.costs(at=at), place.status().budget
        problem, found = costs.problem, cost_json(costs, budget) if as_json else cost_lines(costs, budget, width)
    if isinstance(found, dict):
        print_json(found)
        return
    for line in found:
        click.echo("".join(click.style(visible(text), fg=colour(tone)) for text, tone in line))
    if problem:
        click.echo(visible(f"note: {problem}"), err=True)
