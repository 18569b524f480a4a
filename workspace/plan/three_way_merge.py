"""Three-way merge of plans: the base as Satchel wrote it, the run's current version, and a person's file.

The items and the text of both sides are joined to one plan, which a parser must read as intended. Then each item gets
its mark, and a person's new marks take effect on the items above and below them (`settle`). Of conflicts, the text of
each version is at hand for a person (`conflict_sides`).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from msgspec import Struct

from .match import Sheet, Version, Versions, align, match, versions
from .plan import Plan
from .task_lines import FINISHED, MARKS, Mark, Splice, Task, body, read_id, with_id, with_mark
from .weave import ConflictCollector, PlanConflict, Side, weave


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
    questions = ConflictCollector(prefer)
    found = versions(ours if base is None else base, ours, theirs)
    joined = join(found, _put_back(found, base is not None, questions), questions)
    _mark(joined, _Marks(joined.versions, base is not None, questions))
    if questions.open:
        return MergedPlan(ours.copy(), tuple(sorted(questions.open, key=lambda one: one.line)))
    _keep_own_work(joined, highest)
    settle(ours, joined.plan, newly=_changed_by_both(joined) if base is not None else ())
    return MergedPlan(joined.plan, ())


def _put_back(versions: Versions, has_base: bool, questions: ConflictCollector) -> set[int]:
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

    def __init__(self, versions: Versions, has_base: bool, questions: ConflictCollector):
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


class Joined(NamedTuple):
    """A plan with the structure of both sides. Marks and ids are as in either side."""

    plan: Plan
    versions: Versions
    numbers: list[int]
    """Those of its items."""


def join(versions: Versions, put_back: Collection[int], questions: ConflictCollector) -> Joined:
    """`put_back` are items that theirs lacks and that stay anyway."""
    base, ours, theirs = versions
    if not put_back and ours.plan.text == base.plan.text:
        return Joined(theirs.plan.copy(), versions, theirs.numbers)
    sheets = Sheet(base, put_back), Sheet(ours), Sheet(theirs)
    if (numbers := _reworded(*sheets)) != theirs.numbers:
        theirs = Version.of(theirs.plan, numbers)
        versions = Versions(base, ours, theirs)
        sheets = Sheet(base, put_back), Sheet(ours), Sheet(theirs)
    woven = weave(*sheets, questions)
    joined = Joined(Plan(woven.text), versions, woven.numbers)
    whole = ours
    if not questions.open:
        if (wrong := _misread(joined)) is None:
            return joined
        whole = theirs if questions.ask(wrong) == "theirs" else ours
    return Joined(whole.plan.copy(), versions, whole.numbers)


def _reworded(base: Sheet, ours: Sheet, theirs: Sheet) -> list[int]:
    """The numbers of theirs, with those of new items in places where as many others were.

    They are the same items in other words, if ours has only changed marks and ids there. It matters for items that the
    run has begun meanwhile: their ids are not in the file yet.
    """
    numbers = list(theirs.numbers)
    start, its_start = 0, 0
    for end, its_end in [*align(base.keys, theirs.keys), (len(base), len(theirs))]:
        gone = [number for entry in range(start, end) if (number := base.number(entry)) is not None]
        gone = [number for number in gone if number not in theirs.where]
        new = [theirs.rows_at[entry] for entry in range(its_start, its_end) if theirs.rows_at[entry] >= 0]
        new = [row for row in new if numbers[row] not in base.where and numbers[row] not in ours.where]
        if len(gone) == len(new) and all(_says_the_same(number, base, ours) for number in gone):
            for row, number in zip(new, gone, strict=True):
                old, mine, its = base.version.tasks[number], ours.version.tasks[number], theirs.plan.at(row)
                if (old.id, old.mark, its.id) == (None, "open", None) and mine.id is not None:
                    numbers[row] = number
        start, its_start = end + 1, its_end + 1
    return numbers


def _says_the_same(number: int, base: Sheet, ours: Sheet) -> bool:
    return number in ours.where and ours.words(ours.where[number]) == base.words(base.where[number])


def _misread(joined: Joined) -> PlanConflict | None:
    """The first item that a parser doesn't find at its intended place."""
    plan, versions, numbers = joined
    there = set(numbers)
    for place, number in enumerate(numbers):
        texts = _texts(number, versions)
        task = plan.at(place) if place < len(plan) else None
        parent = None if task is None or task.parent is None else numbers[task.parent]
        if task is None or task.text not in texts or parent != _parent(number, versions, there):
            its = versions.theirs.tasks.get(number)
            return PlanConflict(its.line + 1 if its else 0, texts[0], "text")
    return PlanConflict(0, plan.at(len(numbers)).text, "text") if len(plan) > len(numbers) else None


def _texts(number: int, versions: Versions) -> list[str]:
    """The possible texts of an item: that of theirs if it changed it, or that of ours."""
    was, mine, its = (version.tasks[number].text if number in version.tasks else None for version in versions)
    if mine is not None and its is not None and was in (mine, its):
        return [its if mine == was else mine]
    return [text for text in (its, mine) if text is not None]


def _parent(number: int, versions: Versions, there: Container[int]) -> int | None:
    """The intended parent of an item: that of theirs if it changed it, else that of ours."""
    base, ours, theirs = versions
    if number not in theirs.tasks:
        return _holder(number, ours, there)
    its = _holder(number, theirs, there)
    if number not in ours.tasks or number not in base.tasks or its != _holder(number, base, there):
        return its
    return _holder(number, ours, there)


def _holder(number: int, version: Version, there: Container[int]) -> int | None:
    """The nearest item above one that is also in the joined plan."""
    above = version.parent(number)
    while above is not None and above not in there:
        above = version.parent(above)
    return above


def settle(before: Plan, plan: Plan, *, newly: Container[int] = ()) -> list[Splice]:
    """Make the marks of parents and children consistent, where `plan` differs from `before`.

    A parent that is no longer finished, though all below it still is, means: do this again. Its done leaves are
    reopened; cancelled ones stay cancelled. A parent whose last unfinished leaf was settled gets the mark that `tick`
    would give it. New work below a finished parent reopens the parent. A parent that is finished only now stays so, and
    open items below it are skipped.

    `newly` are indexes in `plan` of items that count as finished, or no longer finished, only now.
    """
    return _Settling(before, plan, newly).run()


def unsettled(plan: Plan) -> list[bool]:
    """For each task whether it has work left: its own, or that of the tasks below it."""
    left = [task.is_work and not task.is_finished for task in plan.tasks]
    for task in reversed(plan.tasks):
        if task.is_finished:
            left[task.index] = False
        elif left[task.index] and task.parent is not None:
            left[task.parent] = True
    return left


class _Settling:
    def __init__(self, before: Plan, plan: Plan, newly: Container[int]):
        self.plan, self.old, self.newly = plan, before.tasks, newly
        self.was = match(before, plan)
        self.skipped = {
            task.index
            for task in self.old
            if not task.is_finished and any(above.is_finished for above in _above(task, self.old))
        }
        self.left = unsettled(before)

    def run(self) -> list[Splice]:
        changes: list[Splice] = []
        tasks = self.plan.tasks
        left = unsettled(self.plan)
        unticked = {task.index for task in tasks if not task.is_finished and self._was_finished(task)}
        for task in tasks:
            if task.index in unticked and not task.is_leaf and not left[task.index] and not self._is_dropped(task):
                for leaf in self._to_do_again(task):
                    changes += self.plan.reopen(leaf)
        for task in reversed(tasks):
            if task.index not in unticked and task.index not in self.newly and self._had_work(task):
                changes += self.plan.conclude(task)
        for task in self.plan.tasks:
            if not task.is_finished and self._is_new_work(task) and not self._is_dropped(task):
                above = next((parent for parent in self._above(task) if parent.is_finished), None)
                changes += self.plan.reopen(above) if above is not None else []
        return changes

    def _old(self, task: Task) -> Task | None:
        index = self.was.get(task.index)
        return None if index is None else self.old[index]

    def _was_finished(self, task: Task) -> bool:
        old = self._old(task)
        return old is not None and old.is_finished

    def _had_work(self, task: Task) -> bool:
        """Whether this edit may conclude an item: it is new, or had work left before."""
        old = self._old(task)
        return old is None or self.left[old.index]

    def _is_new_work(self, task: Task) -> bool:
        old = self._old(task)
        return old is None or old.index not in self.skipped

    def _is_dropped(self, task: Task) -> bool:
        """Whether this very edit has finished an item above."""
        return any(parent.is_finished and self._is_newly_marked(parent) for parent in self._above(task))

    def _is_newly_marked(self, task: Task) -> bool:
        old = self._old(task)
        return old is None or old.mark != task.mark or task.index in self.newly

    def _to_do_again(self, task: Task) -> Iterator[Task]:
        """The done leaves that were also done below this item before, and have no cancelled or newly finished
        parent."""
        top = self._old(task)
        waiting = list(reversed(task.children))
        while waiting:
            each = self.plan.at(waiting.pop())
            old = self._old(each)
            if each.mark == "cancelled" or old is None or (each.is_finished and self._is_newly_marked(each)):
                continue
            if each.is_work and each.mark == "done" and any(above is top for above in _above(old, self.old)):
                yield each
            waiting += reversed(each.children)

    def _above(self, task: Task) -> Iterator[Task]:
        """The items above as they are now."""
        while task.parent is not None:
            task = self.plan.at(task.parent)
            yield task


def _above(task: Task, tasks: Sequence[Task]) -> Iterator[Task]:
    while task.parent is not None:
        task = tasks[task.parent]
        yield task


_LINES = 5_000
"""Lines of a plan from which on text between items is not looked for in the other versions: that would take seconds."""


class ConflictSides(NamedTuple):
    """What the base, the run and the file say at one place. None: nothing, or it is not known."""

    base: str | None
    ours: str | None
    theirs: str | None


def conflict_sides(
    conflicts: Iterable[PlanConflict], base: Plan | None, ours: Plan, theirs: Plan
) -> Iterator[ConflictSides]:
    """For each conflict what each version has there: the line of the item, the lines between items, or all items."""
    found = versions(ours if base is None else base, ours, theirs)
    for conflict in conflicts:
        if conflict.why == "everything_removed":
            sides = ConflictSides(*(_items(version) for version in found))
        elif (number := _number(conflict, found)) is not None:
            sides = ConflictSides(*(_line(number, version) for version in found))
        else:
            sides = _lines(conflict, *(tuple(map(body, version.plan.lines)) for version in found))
        yield sides if base is not None else sides._replace(base=None)


def _number(conflict: PlanConflict, found: Versions) -> int | None:
    """The number of the item that a conflict is about. None: it is about text between items."""
    if conflict.line:
        its = (number for number, task in found.theirs.tasks.items() if task.line == conflict.line - 1)
        return next(its, None)
    named = (number for side in (found.ours, found.base) for number, task in side.tasks.items())
    return next((number for number in named if _text(number, found) == conflict.text), None)


def _text(number: int, found: Versions) -> str:
    task = found.ours.tasks.get(number) or found.base.tasks[number]
    return task.text


def _line(number: int, version: Version) -> str | None:
    task = version.tasks.get(number)
    return None if task is None else body(version.plan.lines[task.line])


def _items(version: Version) -> str | None:
    lines = [body(version.plan.lines[task.line]) for task in version.plan.tasks]
    return "\n".join(lines) or None


def _lines(conflict: PlanConflict, base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> ConflictSides:
    """The changed lines around a line of the file, and what is there in the other versions."""
    at = conflict.line - 1
    if at < 0 or max(map(len, (base, ours, theirs))) > _LINES:
        return ConflictSides(None, None, conflict.text)
    its = SequenceMatcher(None, base, theirs, autojunk=False).get_opcodes()
    start, end, first, last = next(
        (low, high, first, last) for tag, low, high, first, last in its if first <= at < last and tag != "equal"
    )
    mine = SequenceMatcher(None, base, ours, autojunk=False).get_opcodes()
    touched = [each for each in mine if each[0] != "equal" and each[1] <= end and each[2] >= start]
    if touched:
        start, end = min(start, touched[0][1]), max(end, touched[-1][2])
    return ConflictSides(
        _joined(base[start:end]),
        _joined(ours[touched[0][3] : touched[-1][4]] if touched else ()),
        _joined(theirs[first:last]),
    )


def _joined(lines: Sequence[str]) -> str | None:
    return "\n".join(lines) if lines else None
