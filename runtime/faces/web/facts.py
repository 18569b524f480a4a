"""What the page of one run shows, from a look at it. Pure, and bounded: a huge run makes no huge page, and JSON values
of any size are shown one level at a time, each value in a line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from msgspec import Struct

from ....workspace.base import UsageError
from ....workspace.plan import Plan, Task
from ....workspace.state import ROOT, json_patch
from ...api import LogRow, RunningCall, RunStatus, Shot
from ...present import StatusLine, Timeline, TimelineEvent, agent_lines, call_name, file_lines, json_line, stream_name

PLAN = 60
"""Items of a plan on the page of a run; the plan has a page of its own."""

BEFORE = 8
"""Of these, how many come before the first that is not finished."""

TIMELINE = 40
"""Records on the page of a run; the log has pages of its own."""

NOTICES = 8
"""Files of each kind that differ from what the run has written."""

LISTED = 12
"""Files, sub-agents and scopes that are listed."""

STREAM = 4000
"""Characters of streamed text, from its end."""

PIECE = 500
"""Characters of a piece of it, at most. Its beginning goes away piece by piece."""


class PlanRow(Struct, frozen=True):
    """An item of a plan. `is_next`: it has begun, or it is the next one."""

    id: str
    text: str
    mark: str
    depth: int
    is_next: bool


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
    status = shot.status
    return {
        "status": status,
        "shot": shot,
        "moment": status.moment,
        "plan": plan_part(status.plan, centred=True),
        "timeline": timeline(shot.rows)[: -TIMELINE - 1 : -1],
        "doing": doing(status),
        "streams": [*streams(status)],
        "below": [*agent_lines(status.moment)] if status.moment else [],
        "outputs": outputs(status),
    }


def times(status: RunStatus) -> list[str]:
    """The times that the words about its state, its pause and its schedule tell."""
    moment, holder = status.moment, status.holder
    found = [holder.since if holder else "", status.heard]
    for pause in (moment.pause if moment else None, status.wish):
        found += [pause.until] if pause else []
    found += [moment.until] if moment else []
    for each in status.schedule:
        found += [each.next, each.last.due if each.last else ""]
    return [each for each in found if each]


def notices(status: RunStatus) -> list[StatusLine]:
    """What is to be said of its files: at most `NOTICES` of each kind, so that none hides the others."""
    kinds, found = Counter[tuple[str, object]](), list[StatusLine]()
    for each in file_lines(status):
        kind = each.title, each.tone
        kinds[kind] += 1
        if kinds[kind] <= NOTICES:
            found.append(each)
    return found + [
        StatusLine(title, f"and {number - NOTICES} more ({title})")
        for (title, _), number in kinds.items()
        if number > NOTICES
    ]


def plan_part(plan: Plan | None, *, centred: bool = False, begin: int = 0, most: int = PLAN) -> PlanPart:
    """A part of a plan: from item `begin` on, or around the next one."""
    tasks = plan.tasks if plan else ()
    at = plan.next_to_do() if plan else None
    if centred:
        first = at.index if at else len(tasks)
        begin = max(0, min(first - BEFORE, len(tasks) - most))
    shown = tasks[begin : begin + most]
    rows = [PlanRow(each.id or "", each.text, each.mark, _depth(each, tasks), each == at) for each in shown]
    return PlanPart(rows, begin, len(tasks) - begin - len(shown))


def _depth(task: Task, tasks: Sequence[Task]) -> int:
    depth = 0
    while task.parent is not None and depth < 6:
        task, depth = tasks[task.parent], depth + 1
    return depth


def timeline(rows: Iterable[LogRow]) -> list[TimelineEvent]:
    """Records in words, in their order."""
    words = Timeline()
    return [words.of(row.line) for row in rows]


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


def outputs(status: RunStatus) -> list[tuple[str, int]]:
    """The outputs by path, with their bytes."""
    return sorted((path, each.bytes) for path, each in status.moment.outputs.items()) if status.moment else []


MOST = 200
"""Values of one level on a page."""

_WIDTH = 160
_TEXT = 20_000


class Value(Struct, frozen=True):
    """A value inside another one. `path` is its JSON pointer; `size` the number of values in it, None for a text or a
    number."""

    key: str
    path: str
    shown: str
    size: int | None


class Level(Struct, frozen=True):
    """The values of one level. `text` is the whole value if it has no parts. `above` are the pointers that lead to
    it, with their keys."""

    values: list[Value]
    total: int
    begin: int
    text: str
    above: list[tuple[str, str]]


def level(data: Any, pointer: str, begin: int = 0) -> Level:
    """What is at a JSON pointer. UsageError if there is nothing."""
    at, above = data, [("", "")]
    for part in json_patch.split(pointer):
        at = _inside(at, part, pointer)
        above.append((f"{above[-1][0]}/{json_patch.escape(part)}", part))
    found = [_value(key, each, pointer) for key, each in islice(_parts(at), begin, begin + MOST)]
    total = len(at) if isinstance(at, dict | list) else 0
    text = "" if isinstance(at, dict | list) else at if isinstance(at, str) else json.dumps(at, ensure_ascii=False)
    return Level(found, total, begin, text[:_TEXT], above[1:])


def _inside(value: Any, part: str, pointer: str) -> Any:
    if isinstance(value, dict) and part in value:
        return value[part]
    if isinstance(value, list) and part.isascii() and part.isdecimal() and int(part[:9]) < len(value):
        return value[int(part[:9])]
    raise UsageError(f"the state has no value {pointer}", remedy="look at the whole state")


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from ((str(index), each) for index, each in enumerate(value))


def _value(key: str, value: Any, above: str) -> Value:
    size = len(value) if isinstance(value, dict | list) else None
    return Value(key, f"{above}/{json_patch.escape(key)}", json_line(value, _WIDTH), size)
