"""The plan of one of several open scopes: a copy, until the commit of the scope makes the same changes in the plan.

Items that the scope adds, and items without an id that it refers to, get an id at once. No other item gets it, and
no other code sees it before the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from ...workspace.base import SatchelError, UsageError
from ...workspace.todo import Plan, Splice, Task


class Contradiction(Exception):
    """Another commit has changed what this one would change. The scope is entered again; this is no failure of it."""


Make = Callable[..., list[Splice]]
"""Changes a plan. Gets the plan, the ids of the new items if they have some, and the tasks there that it is about."""


class PlanEdit(Struct, frozen=True):
    """A change of the plan by an agent, which can be made again in a later plan."""

    why: str
    make: Make
    about: tuple[Task, ...] = ()
    adds: int = 0  # new items
    ends: bool = False  # the items that it is about
    planned: str = ""  # the hash of a `run.plan`


class _Made(NamedTuple):
    """A change that the scope has made in its copy."""

    edit: PlanEdit
    about: Sequence[Task]  # as they were then, all with ids
    ids: Sequence[str]  # of the new items


class OwnPlan:
    """For one attempt at a scope. `free_id` reserves an id that no plan has and no other item will get."""

    def __init__(self, plan: Plan, free_id: Callable[[Plan], str]):
        self.plan = plan.copy()
        self._base = plan.copy()
        self._free_id = free_id
        self._made: list[_Made] = []
        self._added: set[str] = set()  # ids of new items
        self._named: dict[str, Task] = {}  # items of the base, by the ids that they have got here

    def change(self, edit: PlanEdit) -> bool:
        """Change the copy. Returns whether that has changed anything."""
        about = [self._with_id(task) for task in edit.about]
        ids = [self._free_id(self.plan) for _ in range(edit.adds)]
        if not edit.make(self.plan, ids, *about):
            return False
        self._made.append(_Made(edit, about, ids))
        self._added.update(ids)
        return True

    def _with_id(self, task: Task) -> Task:
        found = self.plan.now(task)
        if found.id is None:
            id = self._free_id(self.plan)
            added = sum(each.id in self._added for each in self.plan.tasks[: found.index])
            self._named[id] = self._base.at(found.index - added)
            self.plan.name(found, id)
            found = self.plan.now(found)
        return found

    def again(self, plan: Plan) -> list[Splice]:
        """Make all changes in `plan`, which others may have changed meanwhile. Contradiction if they do not fit any
        more."""
        lines = plan.lines
        try:
            splices: list[Splice] = []
            known: dict[str, str] = {}  # ids in the plan, by those in the copy
            for task in (task for made in self._made for task in made.about):
                assert task.id is not None
                if task.id in self._named and task.id not in known:
                    known[task.id], naming = self._placed(plan, task.id)
                    splices += naming
            for made in self._made:
                about = [_found(plan, known, task) for task in made.about]
                if made.edit.ends and any(
                    now.is_finished > was.is_finished for now, was in zip(about, made.about, strict=True)
                ):
                    raise Contradiction("an item that it would cancel has ended")
                for id in made.ids:
                    _check_free(plan, id)
                splices += made.edit.make(plan, made.ids, *about)
            return splices
        except SatchelError as error:
            if lines == self._base.lines:
                raise  # no other scope has changed anything, so it would be the same at every attempt
            raise Contradiction(str(error)) from error

    def _placed(self, plan: Plan, id: str) -> tuple[str, list[Splice]]:
        """The id of an item that had none in the base, and the change that gives it one if it still has none."""
        was = self._base.now(self._named[id])
        try:
            found = plan.now(was)
        except UsageError:
            alike = [task for task in plan.tasks if task.text == was.text]
            if len(alike) != 1 or sum(task.text == was.text for task in self._base.tasks) != 1:
                raise
            found = alike[0]
        if found.id is not None:
            return found.id, []
        _check_free(plan, id)
        return id, plan.name(found, id)


def _found(plan: Plan, known: dict[str, str], task: Task) -> Task:
    assert task.id is not None
    found = plan.task(known.get(task.id, task.id))
    if found is None:
        raise UsageError(f"the item {task.text!r} is no longer in todo.md")
    return found


def _check_free(plan: Plan, id: str) -> None:
    """A person may have used it meanwhile."""
    if plan.task(id) is not None:
        raise Contradiction(f"the id ^{id} is used by another item now")
