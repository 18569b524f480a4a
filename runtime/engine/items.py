"""The items of the plan and the tasks of the inbox, each as a scope: one after the other, or several at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol

from ...workspace.plan import Splice, Task
from ...workspace.state import scope_of_task
from ..steps import Retry
from .parallel import Begin, Dismissed
from .session import ScopeBody, Session


class ItemFace(Protocol):
    """What this module needs of an item (run/todo.py)."""

    skipped: str | None


Make = Callable[[str], ItemFace]
"""The item with this id, for the agent."""


class InboxDecision(NamedTuple):
    """What is to be done with a task of the inbox, and why it was dropped, if it was."""

    work: Callable[..., Any]
    dropped: str | None = None


async def in_order(session: Session, make: Make, work: Callable[..., Any]) -> None:
    """Run every open leaf of the plan. Looks at the plan again after each."""
    session.end_dropped()
    follows = False
    while (task := _next(session)) is not None:
        session.check_may_begin(task.text, follows=follows)
        await _run(session, await _begin(session, task), task.text, make, work)
        follows = True


async def in_parallel(session: Session, make: Make, work: Callable[..., Any], most: int) -> None:
    """The same with up to `most` items at once. They begin in order."""

    async def begin() -> tuple[str, Coroutine[Any, Any, None]] | None:
        assert session.parallel is not None
        task = _next(session, session.parallel.keys, session.parallel.held)
        if task is None:
            return None
        session.check_may_begin(task.text)
        key = await _begin(session, task)
        return key, _run(session, key, task.text, make, work)

    session.end_dropped()
    await several(session, most, begin)


async def several(session: Session, most: int, begin: Begin, *, looks_again: bool = False) -> None:
    """See `ParallelScopes.run`. The agent's own `run.state` is a new object afterwards. `looks_again`: what is to begin
    may come from outside, so `begin` is asked after each look at the folder, too."""
    folder = session.context.folder
    with session.in_parallel() as parallel:
        with folder.telling(parallel.wake) if looks_again else nullcontext():
            error = await parallel.run(begin, most)
        session.check_going_on()
        if error is not None:
            raise error


async def run_task(session: Session, id: str, title: str, make: Callable[[], InboxDecision | None], task: Any) -> None:
    """Try to do a task of the inbox until it commits or fails. The commit ends the task, and says why it was dropped if
    it was. `make` is called for each attempt; it returns None if the task has ended."""
    session.check_may_begin(title)
    key = scope_of_task(id)

    def body() -> ScopeBody | None:
        if (doing := make()) is None:
            return None
        work, dropped = doing
        return ScopeBody(key, title, lambda: work(session.run, task), lambda: ([], dropped), tasks=(id,))

    await session.run_body(key, body)


def _next(session: Session, running: Collection[str] = (), held: Collection[str] = ()) -> Task | None:
    """The next open leaf besides the `running` ones, and those that an edit which waits is about. In a replay only the
    one item counts."""
    only = session.context.only
    if only is None or session.path:
        return session.plan.next_to_do(running, (lambda task: task.known_by not in held) if held else None)
    session.check_going_on()  # when it is done, this ends the agent
    task = session.plan.next_to_do(running, lambda task: only.is_it(task.id, task.text) and task.known_by not in held)
    if task is None and not (running or held):
        raise only.missed(session.context.stopping, "it is not open in the plan")
    return task


async def _run(session: Session, key: str, text: str, make: Make, work: Callable[..., Any]) -> None:
    """Run one item that has begun. Its function is a scope, and the commit ticks it. A failed item is tried again, and
    finished steps return their results; after three failures the run is paused. Returns when it is not to do any
    more."""
    watch, has_failed = session.context.watch, False
    while True:
        session.check_may_begin(text, follows=not has_failed)
        if watch:
            watch.item_begun(session.path, text, *session.plan.progress)
        try:
            await session.run_body(key, lambda: _body(session, key, make(key), work))
            break
        except Dismissed:
            session.end_dropped()
            raise
        except Exception as error:
            if not Retry().is_worth_it(error):
                raise  # a programming mistake, so the next attempt would fail too
            has_failed = True
            await session.wait_to_try_again(key, error)
    if watch:
        watch.item_ended(session.path, text, *session.plan.progress)


async def _begin(session: Session, task: Task) -> str:
    """Record that the item has begun, and give it an id if it has none."""
    splices = session.plan.begin(task, session.highest_id)
    key = session.plan.now(task).id
    assert key is not None, "a begun item has an id"
    await session.rehearse_begin(key, task.text)
    session.record_begin(key, task.text, splices)
    return key


def _body(session: Session, key: str, item: ItemFace, work: Callable[..., Any]) -> ScopeBody | None:
    """One attempt at an item; None if it is not to do any more, because a person or another item has dropped it, or
    not yet, because it has got sub-items."""
    task = session.plan.task(key)
    if task is None or not session.plan.is_ready(key):
        return None
    splices = session.plan.begin(task, session.highest_id)  # it may be one that a person has restarted

    def finish() -> tuple[list[Splice], str | None]:
        found = session.plan.task(key)
        if found is None or found.mark == "cancelled":
            return [], item.skipped
        if item.skipped is None and session.plan.has_rest(found):
            return [], None  # it has got sub-items meanwhile, and is done with the last of them
        edit = session.plan.tick if item.skipped is None else session.plan.cancel
        return edit(found), item.skipped

    return ScopeBody(key, task.text, lambda: work(session.run, item), finish, splices=splices)
