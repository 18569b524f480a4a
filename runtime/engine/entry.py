"""Enter an agent, the items of its plan and the tasks of its inbox: each is a scope.

The data of an agent is migrated before its function is called with the recorded state, from the top. Items run one
after the other, or several at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol

from msgspec import Raw
from msgspec.structs import replace

from ...workspace.base import Refused, UsageError
from ...workspace.journal import Migrated, Patch, PauseRequested, ScopeBegun, ScopeCommitted
from ...workspace.plan import Splice, Task
from ...workspace.state import ROOT, scope_of_task
from ..agent import Retry, check_known, current_scope, describe, migrate
from ..live import Suspended, first_state
from .open_scope import current_call
from .parallel import Begin, Dismissed
from .scope import RaisedFromRecord, ScopeRun, ask_about_all, is_entered_again, record_of, until_fresh
from .session import ScopeBody, Session


def check_parallel(what: str, parallel: int) -> None:
    if type(parallel) is not int or parallel < 1:
        raise UsageError(f"{what} got parallel={parallel!r}", why="it is how many may run at once, 1 or more")


async def call(session: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the agent's function. When this returns or raises, nothing of the agent runs any more."""
    return await until_fresh(lambda: _enter(session, args, kwargs))


async def _enter(session: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    session.run = session.context.make_run(session)
    if session.root_key not in session.recorded.scopes:
        session.journal.add(ScopeBegun(agent=session.path, scope=session.root_key, title=session.root_key[1:]))
        session.journal.flush()
    session.root = ScopeRun(session, session.root_key, "", session.recorded.scopes[session.root_key])
    tokens = current_scope.set(session.root), current_call.set(None)
    try:
        await _take_state(session)
        session.check_going_on()
        result = await session.agent.function(session.run, *args, **kwargs)
        await session.quiet()
        session.check_going_on()
        session.root.work.made.check("the agent", session.store.url)
        ask_about_all(session, session.root)
        session.record_uncalled()
        session.live.check_unchanged("when the agent returned")
        return result
    except BaseException as error:
        failed = record_of(session.root, error)
        is_replayed = is_entered_again(failed, error)
        session.is_closing = not is_replayed
        session.root.abandon()
        if session.parallel is not None and session.parallel.named:
            session.parallel.close()
        await session.quiet()
        if failed is not None and failed.calls:
            session.journal.add(replace(failed, uncounted=True))
            session.journal.flush()
        if is_replayed:
            raise RaisedFromRecord from error
        raise
    finally:
        session.root.ended = True
        current_scope.reset(tokens[0])
        current_call.reset(tokens[1])


async def _take_state(session: Session) -> None:
    """Take state and plan from the moment. For a new agent, record the first state; for data of an earlier version,
    migrate it."""
    if session.recorded.has_data and _migrate(session):
        session.publish_schemas()
    if not session.recorded.has_data:
        data = first_state(session.agent.initial_state(), session.live.codec)
        whole: Patch = [{"op": "add", "path": "", "value": Raw(data)}]
        if session.agent.version != session.recorded.data_version:  # first: data of that version must not be migrated
            session.journal.add(Migrated(agent=session.path, to=session.agent.version))
        session.journal.add(ScopeCommitted(agent=session.path, scope=ROOT, patch=whole))
        await session.root.durable()
        if not session.path:  # a checkpoint to return to, before the first stop
            await session.context.workspace.checkpoint_start()
    session.rollback()


def _migrate(session: Session) -> bool:
    """Convert the recorded data to the newest version, without the keys that the agent drops. Returns whether there was
    anything to do; durable when it returns. If there is no way, the run is paused (it has not failed), and Suspended is
    raised."""
    context, recorded, declared, codec = session.context, session.recorded, session.agent, session.live.codec
    was = recorded.data_version
    try:
        migrated = migrate(recorded.data, was, declared.migrations, codec, recorded.folder)
        gone = check_known(migrated.data, codec, declared.drop, declared.unknown, recorded.folder)
    except Refused as error:
        context.stopping.pause(PauseRequested(reason=str(error), by="satchel"), describe(error, context.store.url))
        raise Suspended from error
    if not migrated.steps and not gone:
        return False
    for step in migrated.steps:
        context.journal.add(Migrated(agent=session.path, to=step.to, patch=step.patch))
    if gone:
        context.journal.add(Migrated(agent=session.path, to=recorded.data_version, patch=gone))
    context.journal.flush()
    whose = f"of {session.path} " if session.path else ""
    now = recorded.data_version
    if migrated.steps:
        context.workspace.report.add_late("done", f"the data {whose}were migrated from version {was} to {now}")
    if gone:
        names = ", ".join(str(each["path"])[1:] for each in gone)
        context.workspace.report.add_late("done", f"the agent has dropped from the data {whose}what it names: {names}")
    context.projector.mark(context.workspace.files[session.path].state)
    return True


# Items and tasks


class ItemFace(Protocol):
    """What this module needs of an item (execution/run_object.py)."""

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
