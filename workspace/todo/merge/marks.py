"""The effect of a person's new marks on the items above and below them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from ..plan import Plan
from ..splice import Splice
from ..task import Task
from .match import match


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
