"""What the page of one run shows, from a look at it. Pure, and bounded: a huge run makes no huge page, and of JSON
values of any size it has a part; the rest comes when it is opened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from msgspec import Struct

from ....workspace.base import UsageError
from ....workspace.journal import Line
from ....workspace.plan import Plan, Task
from ....workspace.state import ROOT, json_patch
from ...api import RunningCall, RunStatus, Shot
from ...present import StatusLine, Timeline, TimelineEvent, agent_lines, call_name, file_lines, json_line, stream_name

PLAN = 24
"""Items of a plan on the page of a run; the plan has a page of its own."""

DONE = 12
"""Items of a plan without anything left to do: what came of it is more worth the room."""

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
    status = shot.status
    return {
        "status": status,
        "shot": shot,
        "moment": status.moment,
        "plan": plan_part(status.plan, centred=True, most=PLAN if _is_open(status.plan) else DONE),
        "timeline": timeline(row.line for row in shot.rows)[: -TIMELINE - 1 : -1],
        "doing": doing(status),
        "streams": [*streams(status)],
        "below": [*agent_lines(status.moment)] if status.moment else [],
        "outputs": outputs(status),
    }


def _is_open(plan: Plan | None) -> bool:
    return plan is not None and plan.next_to_do() is not None


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


def outputs(status: RunStatus) -> list[tuple[str, int]]:
    """The outputs by path, with their bytes."""
    return sorted((path, each.bytes) for path, each in status.moment.outputs.items()) if status.moment else []


_WIDTH = 160


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


NODES = 300
"""Values of a folded value that are on a page from the beginning; the others come when they are opened."""

DEPTH = 8

PIECE_OF_TEXT = 20_000
"""Characters of a long text in one piece."""

_SHORT_TEXT = 2_000


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
