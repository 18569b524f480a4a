"""Three-way merge of plans: the base as Satchel wrote it, the run's current version, and a person's file."""

from __future__ import annotations

from collections.abc import Container

from msgspec import Struct

from ..plan import Plan
from ..splice import Splice, body
from ..task import FINISHED, MARKS, Mark, Task, read_id, with_id, with_mark
from .conflict import PlanConflict, Questions, Side
from .join import Joined, join
from .marks import settle, unsettled
from .match import Version, Versions, versions


class MergedPlan(Struct, frozen=True):
    """A plan of its own, and its conflicts. With conflicts it is a copy of ours."""

    plan: Plan
    conflicts: tuple[PlanConflict, ...]


def merge_plans(
    base: Plan | None, ours: Plan, theirs: Plan, *, prefer: Side | None = None, highest: int = 0
) -> MergedPlan:
    """Join the edits in `theirs`, a file made from `base`, with what the run has changed since.

    An item is the same by its id, or by its text if one of the two has none; an id that is missing in theirs is
    restored. Lines, words and marks are merged separately, then marks of parents are made consistent (`settle`).

    Without a base theirs is taken, with its text, except for what may only be old or forgotten: an item that ours has
    finished and theirs has not is a conflict, and so is one that theirs lacks. Not taken for an untick: a begun item
    that is open in theirs, and a parent whose leaves are all settled there, or that has new work.

    `prefer` resolves all conflicts. Items that it puts back come with their notes.

    Work of ours that has got children keeps its own work, and an id above `highest` if it has none.
    """
    if theirs.text == ours.text or (base is not None and theirs.text == base.text):
        return MergedPlan(ours.copy(), ())
    questions = Questions(prefer)
    found = versions(ours if base is None else base, ours, theirs)
    joined = join(found, _put_back(found, base is not None, questions), questions)
    _mark(joined, _Marks(joined.versions, base is not None, questions))
    if questions.open:
        return MergedPlan(ours.copy(), tuple(sorted(questions.open, key=lambda one: one.line)))
    _keep_own_work(joined, highest)
    settle(ours, joined.plan, newly=_changed_by_both(joined) if base is not None else ())
    return MergedPlan(joined.plan, ())


def _keep_own_work(joined: Joined, highest: int) -> None:
    """Let work that has got items below it be done after them."""
    ours, plan = joined.versions.ours, joined.plan
    plan.take_own_work(ours.plan.own_work)
    for place, number in enumerate(joined.numbers):
        task = plan.at(place)
        if number in ours.tasks and ours.tasks[number].is_work and not (task.is_work or task.is_finished):
            plan.keep_work_of(task, max(highest, ours.plan.highest_number))


def _changed_by_both(joined: Joined) -> set[int]:
    """What theirs has finished, or reopened, though the run has done the same meanwhile."""
    found: set[int] = set()
    for place, number in enumerate(joined.numbers):
        if all(number in version.tasks for version in joined.versions):
            was, mine, its = (version.tasks[number] for version in joined.versions)
            is_finished = its.is_finished and was.mark != its.mark == mine.mark
            if is_finished or (was.is_finished and not mine.is_finished and not its.is_finished):
                found.add(place)
    return found


def _put_back(versions: Versions, has_base: bool, questions: Questions) -> set[int]:
    """The items that theirs lacks but that do not count as removed."""
    base, ours, theirs = versions
    removed = [number for number in ours.tasks if number not in theirs.tasks and number in base.tasks]
    if removed and not theirs.tasks:
        return set(removed) if questions.ask(PlanConflict(0, "", "everything_removed")) == "ours" else set()
    if has_base:
        return set()
    conflicts = {number: PlanConflict(0, ours.tasks[number].text, "removal_without_base") for number in removed}
    return {number for number, conflict in conflicts.items() if questions.ask(conflict) == "ours"}


def _mark(joined: Joined, marks: _Marks) -> None:
    """Give the items of both sides the merged mark, and their id."""
    ours, theirs = joined.versions[1:]
    lines, changes, doubtful = joined.plan.lines, list[Splice](), list[Splice]()
    for number, (at, column, *_) in zip(joined.numbers, joined.plan.outline(), strict=True):
        if number in ours.tasks and number in theirs.tasks:
            mark = marks.choose(number)
            line = lines[at] if MARKS[lines[at][column]] == mark else with_mark(lines[at], column, mark)
            if (id := ours.tasks[number].id) is not None:
                line = _identified(line, column, id)
            if marks.is_doubtful(number):
                doubtful.append(Splice(at, 1, line))
                line = with_mark(line, column, ours.tasks[number].mark)
            changes += [Splice(at, 1, line)] if line != lines[at] else []
    joined.plan.apply(changes)
    if joined.plan.text != ours.plan.text:
        joined.plan.apply(doubtful)


def _identified(line: str, column: int, id: str) -> str:
    """A task's line with this id. An id that a person has added meanwhile comes too late: the run already uses
    another."""
    word = read_id(line, column)
    if word is None:
        return with_id(line, id)
    if word.lower() == id.lower():
        return line
    kept = body(line).rstrip()
    return kept[: -len(word)] + id + line[len(kept) :]


class _Marks:
    """The mark of an item that both sides have."""

    def __init__(self, versions: Versions, has_base: bool, questions: Questions):
        self.base, self.ours, self.theirs = versions
        self.has_base, self.questions = has_base, questions
        self.left = unsettled(self.theirs.plan)
        self.holding = _with_work(self.theirs)
        self.growing = _with_work(self.theirs, self.ours.tasks)

    def choose(self, number: int) -> Mark:
        mine, its = self.ours.tasks[number], self.theirs.tasks[number]
        if mine.mark == its.mark:
            return its.mark
        if not self.has_base:
            return self._choose_without_base(number, mine, its)
        was = self.base.tasks[number].mark if number in self.base.tasks else "open"
        if mine.mark == was:
            return its.mark
        if its.mark == was or self._yields(was, its):
            return mine.mark
        if mine.mark == "begun" or not (mine.is_finished or its.is_finished):
            return mine.mark if its.mark == "open" else its.mark
        if not its.is_finished and self._is_only_late(its):
            return mine.mark
        return self._ask(PlanConflict(its.line + 1, its.text, "mark", mine.mark, its.mark))

    def _choose_without_base(self, number: int, mine: Task, its: Task) -> Mark:
        if mine.is_finished and not its.is_finished:
            if self._is_only_late(its) or number in self.growing:
                return mine.mark
            return self._ask(PlanConflict(its.line + 1, its.text, "untick_without_base", mine.mark, its.mark))
        if not mine.is_finished and not its.is_finished and (its.mark == "open" or not its.is_leaf):
            return mine.mark
        return its.mark

    def _yields(self, was: Mark, its: Task) -> bool:
        """Whether theirs has only begun an item; or a parent is begun or not, which has no meaning of its own."""
        return (was, its.mark) == ("open", "begun") or not (its.is_leaf or its.is_finished or was in FINISHED)

    def is_doubtful(self, number: int) -> bool:
        """Whether a parent may be finished in theirs only because it once was: before this very edit was merged, and
        the parent was reopened for the new work in the edit. Then nothing else in the two plans differs."""
        mine, its = self.ours.tasks[number], self.theirs.tasks[number]
        return not self.has_base and its.is_finished and not mine.is_finished and number in self.holding

    def _is_only_late(self, its: Task) -> bool:
        """Whether a parent would be finished if its mark followed the items below it."""
        return not its.is_leaf and not self.left[its.index]

    def _ask(self, conflict: PlanConflict) -> Mark:
        mark = conflict.theirs if self.questions.ask(conflict) == "theirs" else conflict.ours
        assert mark is not None
        return mark


def _with_work(version: Version, known: Container[int] = ()) -> set[int]:
    """The items with an unfinished one below them that is not `known`."""
    found: set[int] = set()
    for number, task in reversed(version.tasks.items()):
        parent = version.parent(number)
        if parent is not None and (number in found or not (task.is_finished or number in known)):
            found.add(parent)
    return found
