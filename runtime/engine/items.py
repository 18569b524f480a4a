"""The items of the plan and the tasks of the inbox, each as a scope: one after the other, or several at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Protocol

from ...workspace.state import scope_of_task
from ...workspace.todo import Splice, Task
from ..steps import Retry
from .lanes import Begin, Lanes
from .session import Body, Session


class ItemFace(Protocol):
    """What this module needs of an item (run/plan.py)."""

    skipped: str | None


Make = Callable[[str], ItemFace]
"""The item with this id, for the agent."""


async def in_order(session: Session, make: Make, work: Callable[..., Any]) -> None:
    """Run every open leaf of the plan. Looks at the plan again after each."""
    follows = False
    while (task := _next(session)) is not None:
        follows = await _run(session, task, make, work, follows=follows)


async def in_parallel(session: Session, make: Make, work: Callable[..., Any], most: int) -> None:
    """The same with up to `most` items at once. They begin in order."""

    async def begin() -> tuple[str, Coroutine[Any, Any, None]] | None:
        assert session.lanes is not None
        task = _next(session, session.lanes.keys)
        if task is None:
            return None
        session.check_may_begin(task.text)
        key, splices = _begun(session, task)
        await session.rehearse_begin(key, task.text)
        session.record_begin(key, task.text, splices)
        return key, run(session.plan.now(task))

    async def run(task: Task) -> None:
        await _run(session, task, make, work, follows=True)

    await several(session, most, begin)


async def several(session: Session, most: int, begin: Begin, every: float | None = None) -> None:
    """See `Lanes.run`. The agent's own `run.state` is a new object afterwards."""
    session.live.check_unchanged("when several scopes began")
    session.live.handed_over()
    lanes = session.lanes = Lanes(most, session.context.stopping.drain)
    session.context.agents.parallel += 1
    try:
        error = await lanes.run(begin, every)
        session.check_going_on()
        if error is not None:
            raise error
        session.live.check_unchanged("when several scopes had ended")
    finally:
        session.lanes = None
        session.context.agents.parallel -= 1
        session.rollback()
        session.live.handed_over()


async def run_task(
    session: Session,
    id: str,
    title: str,
    work: Callable[..., Any],
    task: Any,
    dropped: str | None = None,
    *,
    follows: bool = False,
) -> None:
    """Try once to do a task of the inbox. The commit ends the task, and says why it was `dropped` if it was."""
    session.check_may_begin(title, follows=follows)
    body = Body(scope_of_task(id), title, lambda: work(session.run, task), lambda: ([], dropped), tasks=(id,))
    await session.run_body(body)


def _next(session: Session, running: Collection[str] = ()) -> Task | None:
    """The next open leaf besides the `running` ones. In a replay only the one item counts."""
    only = session.context.only
    if only is None or session.path:
        return session.plan.next_leaf(running)
    session.check_going_on()  # when it is done, this ends the agent
    task = session.plan.next_leaf(running, lambda task: only.is_it(task.id, task.text))
    if task is None and not running:
        raise only.missed(session.context.stopping, "it is not open in the plan")
    return task


async def _run(session: Session, task: Task, make: Make, work: Callable[..., Any], *, follows: bool) -> bool:
    """Run one item. Its function is a scope, and the commit ticks it. A failed item is tried again, and finished steps
    return their results; after three failures the run is paused. Returns whether it has committed. `follows`: no code
    of the agent has run since one before it has."""
    text, watch = task.text, session.context.watch
    while True:
        session.check_may_begin(text, follows=follows)
        key, splices = _begun(session, task)
        if watch:
            watch.item_begun(session.path, text, *session.plan.progress)
        try:
            await session.run_body(_body(session, key, text, make(key), work), splices)
            follows = True
            break
        except Exception as error:
            if not Retry().is_worth_it(error):
                raise  # a programming mistake, so the next attempt would fail too
            await session.wait_to_try_again(key, error)
            found, follows = session.plan.task(key), False
            if found is None or found.is_finished:
                break  # a person has removed it meanwhile
            task = found
    if watch:
        watch.item_ended(session.path, text, *session.plan.progress)
    return follows


def _begun(session: Session, task: Task) -> tuple[str, Sequence[Splice]]:
    splices = session.plan.begin(task, session.recorded.highest_id)
    key = session.plan.now(task).id
    assert key is not None, "a begun item has an id"
    return key, splices


def _body(session: Session, key: str, text: str, item: ItemFace, work: Callable[..., Any]) -> Body:
    def finish() -> tuple[list[Splice], str | None]:
        found = session.plan.task(key)
        if found is None or found.mark == "cancelled":
            return [], item.skipped
        edit = session.plan.tick if item.skipped is None else session.plan.cancel
        return edit(found), item.skipped

    return Body(key, text, lambda: work(session.run, item), finish)
