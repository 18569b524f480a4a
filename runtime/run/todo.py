"""`run.todo`: the plan and its items."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, overload

import msgspec

from ...workspace.base import AgentError, UsageError
from ..steps import awaited, canonical

if TYPE_CHECKING:
    from ...workspace.plan import Plan, Splice, Task
    from ..engine import Session


class Item:
    """One task of the plan, as it is now."""

    def __init__(self, session: Session, id: str):
        self._session, self.id = session, id
        self.skipped: str | None = None

    def _task(self) -> Task:
        task = self._session.plan.task(self.id)
        if task is None:
            raise UsageError(f"the item ^{self.id} is no longer in todo.md")
        return task

    @property
    def text(self) -> str:
        return self._task().text

    @property
    def done(self) -> bool:
        return self._task().mark == "done"

    def skip(self, reason: str) -> None:
        """Cancel the item: when its function returns, it is marked `[-]` instead of ticked."""
        self.skipped = _text(self._session, "the reason in item.skip()", reason)

    @property
    def result(self) -> Any:
        """What the item's function returned, once it has committed; else None."""
        from ...workspace.journal import blobs

        kept = self._session.recorded.results.get(self.id)
        return None if kept is None else msgspec.json.decode(blobs.fetch(self._session.store, kept))

    def __repr__(self) -> str:
        return f"<item {self.text!r} ^{self.id}>"


class Todo:
    """The plan, todo.md. Outside a scope a change is kept at once, inside one with its commit."""

    def __init__(self, session: Session):
        self._session = session

    @property
    def items(self) -> Sequence[Task]:
        """All tasks in the order of the file, with `text`, `mark`, `id`, `children`."""
        return _Items(self._session)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._session.plan.tasks)

    def result(self, item: Task | str) -> Any:
        """What the function of a finished item returned, or None."""
        found = self._find(item)
        return Item(self._session, found.id).result if found.id else None

    def remaining(self) -> str:
        """The rest of the plan as Markdown, for a prompt."""
        return self._session.plan.remaining()

    @awaited("run.todo.each")
    async def each(self, work: Callable[[Any, Item], Any], *, parallel: int = 1) -> None:
        """Call `work(run, item)` for every open item without open sub-items, in order. Looks at the plan again after
        each. A heading for sub-items is none of them: the agent has added these, or they were there from the beginning.

        Up to `parallel` items run at once, each with its own copy of `run.state`. When an item ends, its changes are
        merged with the commits made meanwhile. If both have changed the same value, the item is entered again: finished
        steps return their results. After two such attempts it runs alone. Elements that both append to a list are all
        kept. Not guaranteed: that a value which an item only reads is still the same when it commits.
        """
        from ..engine import entry

        check_parallel("run.todo.each()", parallel)
        self._session.check_between_scopes("run.todo.each() was called")
        plan = self._session.plan
        if not len(plan):
            raise AgentError(
                f"{self._session.folder}todo.md has no items",
                why="a plan without items is not a finished plan",
                remedy="add lines like `- [ ] the task`, or call run.plan(...) first",
            )
        if parallel == 1:
            await entry.in_order(self._session, self._item, work)
        else:
            await entry.in_parallel(self._session, self._item, work, parallel)

    def _item(self, id: str) -> Item:
        return Item(self._session, id)

    @awaited("run.todo.add")
    async def add(self, text: str, *, after: Task | str | None = None, under: Task | str | None = None) -> None:
        """Add an open item: after another item and its sub-items, as the last sub-item of another, or at the end. An
        item that gets sub-items is done when they are."""
        text = _text(self._session, "the text of an item", text)
        near = {name: self._find(item) for name, item in (("after", after), ("under", under)) if item is not None}

        def make(plan: Plan, ids: Sequence[str], *found: Task) -> list[Splice]:
            return plan.add([text], **dict(zip(near, found, strict=True)), ids=ids)

        await self._session.replan("added", make, *near.values(), adds=1)

    @awaited("run.todo.cancel")
    async def cancel(self, item: Task | str) -> None:
        """Mark an item and its open sub-items as cancelled. One that runs in parallel stops at its next safe point."""
        found = self._find(item)
        await self._session.replan("cancelled", lambda plan, ids, task: plan.cancel(task), found, ends=True)

    @awaited("run.todo.note")
    async def note(self, item: Task | str, text: str) -> None:
        """Write a remark below an item."""
        text = _text(self._session, "a remark", text)
        await self._session.replan("noted", lambda plan, ids, task: plan.note(task, text), self._find(item))

    def _find(self, item: Task | str | Item) -> Task:
        """Find an item by its id, or by its text."""
        from ...workspace.plan import Task

        plan = self._session.plan
        if isinstance(item, Task) and item.id is None:
            return item
        word = self._session.context.redactor.text(item) if isinstance(item, str) else str(item.id)
        if found := plan.task(word):
            return found
        by_text = [task for task in plan.tasks if task.text == word]
        if len(by_text) == 1:
            return by_text[0]
        raise UsageError(
            f"no item {word!r} in todo.md" if not by_text else f"several items read {word!r}",
            remedy="name it by its id, without the ^",
        )


def check_parallel(what: str, parallel: int) -> None:
    if type(parallel) is not int or parallel < 1:
        raise UsageError(f"{what} got parallel={parallel!r}", why="it is how many may run at once, 1 or more")


def _text(session: Session, name: str, text: str) -> str:
    """A text from the agent without secrets. UsageError names what it is if it is none."""
    from ...workspace.base import arguments

    return session.context.redactor.text(arguments.text(name, text))


async def write(session: Session, title: str | None, items: Sequence[str]) -> None:
    """Write the plan, once: an equal call at a re-entry does nothing. AgentError if there is another plan."""
    if isinstance(items, str):
        raise UsageError("run.plan() takes a list of items", why="got a text", remedy=f"write [{items[:20]!r}]")
    from ...workspace.base import arguments

    texts = [arguments.text(f"items[{number}] of run.plan()", text) for number, text in enumerate(items)]
    if title is not None:
        arguments.text("the title in run.plan()", title)
    planned = blake2b(canonical([title, texts], "the plan"), digest_size=8).hexdigest()
    title, texts = session.context.redactor.value([title, texts])

    def make(plan: Plan, ids: Sequence[str]) -> list[Splice]:
        if planned == session.planned:
            return []
        if len(plan):
            raise AgentError(
                "run.plan() would write a second plan",
                why="todo.md already has items of the agent or of a person",
                remedy="call it under `if not run.todo.items:`, and add to a plan with `await run.todo.add(text)`",
            )
        return plan.write(title, texts, ids)

    await session.replan("planned", make, adds=len(texts), planned=planned)


class _Items(Sequence["Task"]):
    """The tasks of the current plan, made one by one: a test for emptiness must not build 10,000 of them."""

    def __init__(self, session: Session):
        self._session = session

    def __len__(self) -> int:
        return len(self._session.plan)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        plan = self._session.plan
        return plan.tasks[index] if isinstance(index, slice) else plan.at(index)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._session.plan.tasks)

    def __repr__(self) -> str:
        return repr(self._session.plan.tasks)
