"""What an edit changed in a plan, to report it and to act on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

from .match import match
from .plan import Plan
from .splice import BOM, body
from .task import Task

_COMPARED = 1000
"""Pairs of texts that are compared at most: that takes a quarter of a second if they are long."""

_LETTERS = 120
_ALIKE = 0.6


class Pair(NamedTuple):
    """One item before and after."""

    before: Task
    after: Task


class Move(NamedTuple):
    """An item that has another parent, or none, than before."""

    item: Task
    source: Task | None
    target: Task | None


class Changes(Struct, frozen=True):
    """Items are the same by id, or by text if one of the two has none, or are alike if both have none. Each list is in
    the order of the text.

    An item that was only begun is in none of them. Parents are listed next to their leaves if their marks changed too.
    """

    ticked: tuple[Pair, ...]
    """Now done; were open or begun."""
    unticked: tuple[Pair, ...]
    """Were done; now open or begun."""
    restarted: tuple[Pair, ...]
    """Were begun; now open."""
    cancelled: tuple[Pair, ...]
    revived: tuple[Pair, ...]
    """Were cancelled; now anything else."""
    removed: tuple[Task, ...]
    added: tuple[Task, ...]
    reworded: tuple[Pair, ...]
    dropped: tuple[Task, ...]
    """Were part of the remaining work, and are not now: by their own marks, or a parent's."""
    nested: tuple[Move, ...]
    """Have another parent, or are at the top level now. Not those whose parent was removed."""
    waiting: tuple[Task, ...]
    """Are now to be done after items below them, and were not before."""
    bare: tuple[Task, ...]
    """Had children and no work of their own, and are unfinished leaves now."""
    moved: bool
    """Whether other items have another order. Added or removed items don't count."""
    prose: bool
    """Whether anything except the items was changed; blank lines and indentation don't count."""

    def __bool__(self) -> bool:
        return any(astuple(self))


def changes(before: Plan, after: Plan) -> Changes:
    """What turned `before` into `after`."""
    known = match(before, after)
    old, new = before.tasks, after.tasks
    known |= _reworded(known, old, new)
    pairs = [Pair(old[known[task.index]], task) for task in new if task.index in known]
    lists: dict[str, list[Pair]] = {}
    for pair in pairs:
        lists.setdefault(_kind(pair), []).append(pair)
    kept = set(known.values())
    nested = tuple(_nested(pairs, before, after, known))
    elsewhere = {move.item.index for move in nested}
    places = [pair.before.index for pair in pairs if pair.after.index not in elsewhere]
    return Changes(
        ticked=tuple(lists.get("ticked", ())),
        unticked=tuple(lists.get("unticked", ())),
        restarted=tuple(lists.get("restarted", ())),
        cancelled=tuple(lists.get("cancelled", ())),
        revived=tuple(lists.get("revived", ())),
        removed=tuple(task for task in old if task.index not in kept),
        added=tuple(task for task in new if task.index not in known),
        reworded=tuple(pair for pair in pairs if pair.before.text != pair.after.text),
        dropped=_dropped(pairs, before, after),
        nested=nested,
        waiting=tuple(
            pair.after
            for pair in pairs
            if pair.after.is_work and after.has_rest(pair.after) and not before.has_rest(pair.before)
        ),
        bare=tuple(
            pair.after
            for pair in pairs
            if not pair.before.is_work and pair.after.is_leaf and not pair.after.is_finished
        ),
        moved=places != sorted(places),
        prose=list(_prose(before)) != list(_prose(after)),
    )


def _reworded(known: Mapping[int, int], old: Sequence[Task], new: Sequence[Task]) -> dict[int, int]:
    """Items that have no id yet, and of which a person has changed the text: those that are most alike, wherever they
    are. They are only told; an item without an id is the same for the run only by its text."""
    kept = set(known.values())
    gone = [task for task in old if task.id is None and task.index not in kept]
    come = [task for task in new if task.id is None and task.index not in known]
    if not gone or not come or len(gone) * len(come) > _COMPARED:
        return {}
    from difflib import SequenceMatcher

    alike = (
        (SequenceMatcher(None, one.text[:_LETTERS], other.text[:_LETTERS], autojunk=False).ratio(), one, other)
        for other in come
        for one in gone
    )
    found: dict[int, int] = {}
    for _, one, other in sorted((each for each in alike if each[0] >= _ALIKE), key=lambda each: -each[0]):
        if other.index not in found and one.index not in found.values():
            found[other.index] = one.index
    return found


def _dropped(pairs: list[Pair], before: Plan, after: Plan) -> tuple[Task, ...]:
    left = {task.index for task in after.to_do()}
    stay = {pair.before.index for pair in pairs if pair.after.index in left}
    return tuple(task for task in before.to_do() if task.index not in stay)


def _kind(pair: Pair) -> str:
    match pair.before.mark, pair.after.mark:
        case one, other if one == other:
            return ""
        case _, "cancelled":
            return "cancelled"
        case "cancelled", _:
            return "revived"
        case _, "done":
            return "ticked"
        case "done", _:
            return "unticked"
        case "begun", "open":
            return "restarted"
        case _:
            return ""


def _nested(pairs: list[Pair], before: Plan, after: Plan, known: Mapping[int, int]) -> Iterator[Move]:
    kept = set(known.values())
    for was, now in pairs:
        above = None if now.parent is None else known.get(now.parent, -1)
        if above == was.parent or (now.parent is None and was.parent not in kept):
            continue
        source = None if was.parent is None or was.parent not in kept else before.at(was.parent)
        yield Move(now, source, None if now.parent is None else after.at(now.parent))


def _prose(plan: Plan) -> Iterator[str]:
    lines, position = plan.lines, 0
    for at, _, _, last, _ in [*plan.outline(), [len(lines)] * 5]:
        for line in lines[position:at]:
            if words := body(line).removeprefix(BOM).strip():
                yield words
        position = last + 1
