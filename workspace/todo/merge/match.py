"""Match the tasks of two plans: by id, and by text where there is none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..plan import Plan
from ..task import Task


def match(old: Plan, new: Plan, known: Mapping[int, int] | None = None) -> dict[int, int]:
    """For the index of each task of `new` that is in `old` too, its index there.

    Ids count first, then what is `known` already, then texts; two tasks with different ids are never the same. Tasks
    with the same text are matched in order if both sides have as many of them; else those with the same parent and the
    same mark come first.
    """
    found: dict[int, int] = {}
    taken: set[int] = set()

    def pair(mine: int, its: int) -> None:
        if mine not in found and its not in taken:
            found[mine] = its
            taken.add(its)

    ids: dict[str, int] = {}
    for task in old.tasks:
        if task.id is not None:
            ids.setdefault(task.id.lower(), task.index)
    for task in new.tasks:
        if task.id is not None and task.id.lower() in ids:
            pair(task.index, ids[task.id.lower()])
    for mine, its in (known or {}).items():
        pair(mine, its)
    same: dict[str, tuple[list[Task], list[Task]]] = {}
    for task in old.tasks:
        if task.index not in taken:
            same.setdefault(task.text, ([], []))[0].append(task)
    for task in new.tasks:
        if task.index not in found and task.text in same:
            same[task.text][1].append(task)
    for before, now in same.values():
        for one, other in _pairs(before, now, old.tasks, new.tasks):
            pair(other.index, one.index)
    return found


def _pairs(
    before: Sequence[Task], now: Sequence[Task], old: Sequence[Task], new: Sequence[Task]
) -> Iterator[tuple[Task, Task]]:
    """Pairs of tasks that all have the same text."""
    if len(before) == len(now) and all(
        one.id is None or other.id is None for one, other in zip(before, now, strict=True)
    ):
        yield from zip(before, now, strict=True)
        return
    used: set[int] = set()
    its_used: set[int] = set()
    for key in _KEYS if now else ():
        for with_id, its_with_id in ((False, False), (False, True), (True, False)):
            places: dict[Hashable, deque[Task]] = {}
            for one in before:
                if one.index not in used and (one.id is not None) == with_id:
                    places.setdefault(key(one, old), deque()).append(one)
            for other in now:
                if other.index in its_used or (other.id is not None) != its_with_id:
                    continue
                if found := places.get(key(other, new)):
                    one = found.popleft()
                    used.add(one.index)
                    its_used.add(other.index)
                    yield one, other


def _parent(task: Task, tasks: Sequence[Task]) -> str | None:
    return None if task.parent is None else tasks[task.parent].text


_KEYS: tuple[Callable[[Task, Sequence[Task]], Hashable], ...] = (
    lambda task, tasks: (_parent(task, tasks), task.mark),
    _parent,
    lambda task, tasks: task.mark,
    lambda task, tasks: None,
)
"""What two tasks with the same text may also have in common, most significant first."""


class Version(NamedTuple):
    """A plan with a number for each task, which is the same for the same item in the other versions."""

    plan: Plan
    numbers: list[int]
    tasks: dict[int, Task]
    """By number."""

    @classmethod
    def of(cls, plan: Plan, numbers: list[int]) -> Version:
        return cls(plan, numbers, dict(zip(numbers, plan.tasks, strict=True)))

    def parent(self, number: int) -> int | None:
        above = self.tasks[number].parent
        return None if above is None else self.numbers[above]


class Versions(NamedTuple):
    """The base of a file, the run's version, and the person's version."""

    base: Version
    ours: Version
    theirs: Version


def versions(base: Plan, ours: Plan, theirs: Plan) -> Versions:
    """Identify the items of three plans. Theirs is matched with ours through the base, because it was made from
    that."""
    to_ours, to_theirs = match(ours, base), match(theirs, base)
    known = {to_theirs[index]: to_ours[index] for index in to_theirs if index in to_ours}
    found = match(ours, theirs, known)
    fresh = len(ours)
    numbers = [found.get(index, fresh + index) for index in range(len(theirs))]
    fresh += len(theirs)
    before = [to_ours.get(index, fresh + index) for index in range(len(base))]
    used = set(before)
    for index, its in to_theirs.items():
        if index not in to_ours and numbers[its] not in used:
            before[index] = numbers[its]
            used.add(numbers[its])
    return Versions(Version.of(base, before), Version.of(ours, list(range(len(ours)))), Version.of(theirs, numbers))
