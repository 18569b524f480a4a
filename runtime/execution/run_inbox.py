"""`run.inbox`: tasks and messages that arrive from outside, before or during a run.

A record says that a task is taken; it is durable before the agent sees the task. A second record says that it is done;
it is in one group with the commit of the work. So no task is lost, and none is done twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Literal
from weakref import WeakSet

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import AgentError, InvalidFile
from ...workspace.inbound import InboxFile, Offered, archive, inbox
from ...workspace.journal import TaskDone, TaskTaken, blobs
from ...workspace.state import ROOT, scope_of_task
from ...workspace.views import BRIEF, PATIENCE, guarded_files
from ..agent import OwnStep, Retry, awaited, current_scope
from ..engine import OpenCall, OpenScope, Session, check_outside_steps, entry, performing

Kind = Literal["task", "message", "schedule"]

_LONGEST = 60.0
"""How many seconds the end of the inbox is delayed for files that a program has open for writing."""


class InboxTask(Struct, frozen=True):
    """A file from `inbox/`. `text` is the content of a `.md`, `data` that of a `.yaml`. A message has a `text`. The
    `data` of a `schedule` has its name and the due time: `{"schedule": "1", "due": "2026-11-23T07:30:00Z"}`."""

    id: str
    name: str  # of the file
    kind: Kind
    text: str
    data: Any = None


class Offer(Struct):
    """What the inbox has offered to the root agent since the agent was entered."""

    files: Offered
    is_open: bool = False  # the agent has asked for tasks, including those of a schedule


class Inbox:
    """The inbox of the root agent. `each` and the loop give tasks one by one; `take` gives messages too."""

    def __init__(self, session: Session, offer: Offer):
        self._session, self._offer = session, offer
        self._store, self._moment = session.store, session.context.moment
        self._arrivals = session.context.arrivals
        self._queue: deque[str] = deque()  # found by the last look, not yet given out
        self._loops: WeakSet[_Tasks] = WeakSet()  # loops that may still ask for the next task
        self._told: set[str] = set()  # files that can neither be taken nor moved

    def __len__(self) -> int:
        """The number of waiting files, messages included."""
        self._check_is_root()
        return len(inbox.waiting(self._store, self._moment))

    @awaited("run.inbox.each")
    async def each(self, work: Callable[[Any, InboxTask], Any], *, parallel: int = 1) -> None:
        """Call `work(run, task)` for every task in the order of their names, each in a scope of its own. Includes tasks
        that arrive meanwhile and those of a schedule. Returns when none is left. A failed task is tried again; after
        three failures the run is paused. A begun task is dropped when `inbox/cancelled/` has a file of its name.

        Up to `parallel` tasks run at once, as `run.todo.each` runs items."""
        entry.check_parallel("run.inbox.each()", parallel)
        self._check_is_root()
        self._check_between_scopes()
        self._session.check_between_scopes("run.inbox.each() was called")
        if parallel == 1:
            while (task := await self._next(in_own_scope=True)) is not None:
                await self._try(work, task)
        else:
            await self._in_parallel(work, parallel)

    async def _in_parallel(self, work: Callable[[Any, InboxTask], Any], most: int) -> None:
        async def begin() -> tuple[str, Coroutine[Any, Any, None]] | None:
            task = await self._next(in_own_scope=True)
            return None if task is None else (scope_of_task(task.id), until_done(task))

        async def until_done(task: InboxTask) -> None:
            while task.id in self._moment.tasks:
                await self._try(work, task)

        await entry.several(self._session, most, begin, looks_again=True)

    async def _try(self, work: Callable[[Any, InboxTask], Any], task: InboxTask) -> None:
        def doing() -> entry.InboxDecision | None:
            if task.id not in self._moment.tasks:
                return None
            if self._is_dropped(task):  # its scope commits without a call, unless one of its effects is in doubt
                return entry.InboxDecision(_do_nothing, dropped=f"{archive.CANCELLED}/{task.name}")
            return entry.InboxDecision(work)

        try:
            await entry.run_task(self._session, task.id, task.name, doing, task)
        except Exception as error:
            if not Retry().is_worth_it(error):
                raise  # a programming mistake, so the next attempt would fail too
            way_out = f". To drop it, move its file into {archive.CANCELLED}/"
            await self._session.wait_to_try_again(scope_of_task(task.id), error, way_out)

    def __aiter__(self) -> AsyncIterator[InboxTask]:
        """The tasks one by one, in the order of `each`. A task is done when the loop asks for the next one. After a
        crash an unfinished task is given again, so put its work into `run.scope(task.id, ...)`, whose result is kept.
        Several loops share the tasks: no task is given to two of them."""
        loop = _Tasks(self)
        self._loops.add(loop)
        return loop

    async def _following(self, id: str) -> InboxTask | None:
        """The next task for a loop that has finished the task `id`, if it had one."""
        self._check_between_scopes()
        self._session.check_between_scopes("the next task was asked for")
        if id in self._moment.tasks:
            self._end(id)
        return await self._next(in_own_scope=False)

    @awaited("run.inbox.take")
    async def take(self, kind: Kind | None = None) -> list[InboxTask]:
        """The tasks and messages that have arrived so far, or only those of one kind. For use in an item or another
        scope. They are done when the scope commits. If the scope is entered again, an equal call returns the same
        ones."""
        self._check_is_root()
        scope = self._session.open_scope("run.inbox.take()")
        self._offer.is_open |= kind in (None, "schedule")
        ids: list[str] = await scope.call(_Take(self), (kind,), {})
        scope.tasks += [id for id in ids if id not in scope.tasks]
        return [self._task(self._moment.tasks[id]) for id in ids if id in self._moment.tasks]

    # One by one

    async def _next(self, *, in_own_scope: bool) -> InboxTask | None:
        """The next task, recorded as taken into a scope of its own, or into none. Tasks that were taken earlier and are
        not done come first."""
        self._check_is_root()
        self._check_between_scopes()
        self._session.check_going_on()
        self._offer.is_open = True
        tasks = [task for task in self._moment.tasks.values() if task.kind != "message" and self._is_free(task)]
        if in_own_scope and (only := self._session.context.only) is not None:
            tasks = [task for task in tasks if only.is_it(scope_of_task(task.id), task.file)]
        while tasks and not in_own_scope and archive.is_cancelled(self._store, tasks[0].file):
            self._end(tasks.pop(0).id)
        task = next(iter(tasks), None)
        is_new = task is None
        if task is None:
            found = await self._next_file()
            if found is None:
                return None
            self._session.check_going_on()
            task = self._record_of(found, 1)
        scope = scope_of_task(task.id) if in_own_scope else ROOT
        if is_new or task.scope != scope:
            task = replace(task, scope=scope)
            self._record([task])
        return self._task(task)

    def _is_dropped(self, task: InboxTask) -> bool:
        """Whether a person has dropped the task after it began. A task that has not begun is dropped by removing its
        file."""
        is_begun = scope_of_task(task.id) in self._session.recorded.scopes
        return is_begun and archive.is_cancelled(self._store, self._moment.tasks[task.id].file)

    def _is_free(self, task: TaskTaken) -> bool:
        """Whether no scope except its own would continue with the task."""
        is_own = task.scope in (ROOT, scope_of_task(task.id))
        is_left = is_own or task.scope not in self._session.recorded.scopes
        return not task.handed_to and is_left and not self._is_held(task.id)

    def _is_held(self, id: str) -> bool:
        """Whether a loop has this task and has not asked for the next, or it is one of several that run at once or wait
        for an edit."""
        parallel, scope = self._session.parallel, scope_of_task(id)
        is_running = parallel is not None and (scope in parallel.keys or scope in parallel.held)
        return is_running or any(loop.current == id for loop in self._loops)

    async def _next_file(self) -> InboxFile | None:
        """The next task file that is completely saved. None if there is none, or if all others take very long to
        save."""
        if (found := self._from_queue()) is not None:
            return found
        began = time.monotonic()
        while True:
            self._look()
            self._queue.extend(self._arrivals.offered)
            if (found := self._from_queue()) is not None:
                return found
            patience = _LONGEST if self._arrivals.are_open else PATIENCE if self._arrivals.are_changing else 0.0
            if time.monotonic() - began >= patience:
                return None
            await asyncio.sleep(guarded_files.WAITS.look)
            self._session.check_going_on()

    def _from_queue(self) -> InboxFile | None:
        while self._queue:
            found = self._read(self._queue.popleft())
            if found is not None and found.said.kind != "message":
                return found
        return None

    def _end(self, id: str) -> None:
        """A task without a scope of its own is done or dropped."""
        self._session.journal.add(TaskDone(id=id))
        self._session.journal.flush()
        archive.put_away(self._store, self._moment)

    # Several at once

    async def taken_in(self, scope: OpenScope, kind: Kind | None) -> list[str]:
        """The ids of the tasks that an earlier attempt of the scope took without a recorded result, and of those that
        have arrived, recorded as taken. For the step below."""
        until = time.monotonic() + BRIEF
        self._look()
        while self._arrivals.are_changing and time.monotonic() < until:
            await asyncio.sleep(guarded_files.WAITS.look)
            self._look()
        self._queue.clear()
        self._session.check_going_on()
        answered = {
            id
            for step in scope.recorded.done.values()
            if step.step == _Take.name
            for id in msgspec.json.decode(blobs.fetch(self._store, step), type=list[str])
        }
        left = [
            task
            for task in self._moment.tasks.values()
            if kind in (None, task.kind)
            and task.id not in answered
            and task.id not in scope.tasks
            and (task.scope == scope.key or self._is_left(task))
        ]
        found = [
            each for path in self._arrivals.offered if (each := self._read(path)) and kind in (None, each.said.kind)
        ]
        moved = [replace(task, scope=scope.key) for task in left if task.scope != scope.key]
        fresh = [replace(self._record_of(each, n), scope=scope.key) for n, each in enumerate(found, 1)]
        if moved or fresh:
            self._record([*moved, *fresh])
        ids = [task.id for task in (*left, *fresh)]
        scope.tasks += ids
        return ids

    def _is_left(self, task: TaskTaken) -> bool:
        """Whether an ended scope has left the task undone, and no code works on it."""
        is_ended = task.scope == ROOT or task.scope not in self._session.recorded.scopes
        return is_ended and not task.handed_to and not self._is_held(task.id)

    # What both need

    def _look(self) -> None:
        """Look once more."""
        self._arrivals.look()
        self._offer.files = self._arrivals.offered

    def _read(self, path: str) -> InboxFile | None:
        """A file that was found, unless another task has taken it meanwhile. A file that can't be taken is refused."""
        try:
            found = self._arrivals.read(path)
        except InvalidFile as error:
            self._refuse(path, error)
            return None
        return None if found is None or (path, found.sha256) in inbox.known(self._moment) else found

    def _refuse(self, path: str, error: InvalidFile) -> None:
        if path in self._told:
            return
        try:
            said = inbox.refuse(self._store, error)
        except InvalidFile:  # not even a file, or far too large
            self._told.add(path)
            said = str(error)
        if said:
            self._session.context.notice("refused", said)

    def _record_of(self, found: InboxFile, number: int) -> TaskTaken:
        """The `number`-th task about to be recorded."""
        said = found.said
        task = TaskTaken(
            id=f"t{self._moment.tasks_taken + number}", scope=ROOT, file=found.path, sha256=found.sha256, kind=said.kind
        )
        if said.firing is not None:
            return replace(task, schedule=said.firing.schedule, due=said.firing.due)
        content = self._session.context.redactor.json(said.content)
        kept = blobs.keep(self._store, content, self._session.journal.generation)
        return replace(task, content=kept.result, blob=kept.blob)

    def _record(self, tasks: list[TaskTaken]) -> None:
        """Durable when this returns. No other code runs meanwhile, so ids are unique."""
        archive.put_away(self._store, self._moment)
        for task in tasks:
            self._session.journal.add(task)
        self._session.journal.flush()

    def _task(self, record: TaskTaken) -> InboxTask:
        name = record.file.rpartition("/")[2]
        if record.kind == "schedule":
            return InboxTask(record.id, name, "schedule", "", {"schedule": record.schedule, "due": record.due})
        content = inbox.content(self._store, record)
        is_data = record.kind == "task" and not name.lower().endswith(".md")
        text = content if isinstance(content, str) else ""
        return InboxTask(record.id, name, record.kind, text, content if is_data else None)

    def _check_is_root(self) -> None:
        check_outside_steps("run.inbox was used")
        if self._session.path:
            raise AgentError(
                f"the agent {self._session.path!r} has no inbox",
                why="files that arrive are for the run's own agent",
                remedy="let that agent take the task and pass it to run.spawn(...) as an argument",
            )

    def _check_between_scopes(self) -> None:
        session = self._session
        if session.here is not None or current_scope.get() is not session.root:
            raise AgentError(
                "the next task was asked for inside a scope",
                why="the task would be done before that scope has committed",
                remedy="use `await run.inbox.take()` there, or ask outside it",
            )


class _Tasks:
    """One loop over the inbox. It owns its task until it asks for the next one, or the task is dropped."""

    def __init__(self, inbox: Inbox):
        self._inbox = inbox
        self.current = ""  # the task that it got last

    def __aiter__(self) -> AsyncIterator[InboxTask]:
        return self

    async def __anext__(self) -> InboxTask:
        task = await self._inbox._following(self.current)
        self.current = "" if task is None else task.id
        if task is None:
            raise StopAsyncIteration
        return task


class _Take(OwnStep[..., list[str]]):
    """For its scope, the taken tasks are the result of a step."""

    name = "inbox.take"

    def __init__(self, inbox: Inbox):
        super().__init__(_take, name=self.name, retry=None, on_partial="restart")
        self._inbox = inbox

    async def perform(self, call: Any) -> Any:
        assert isinstance(call, OpenCall)
        ids = await self._inbox.taken_in(call.scope, call.arguments["kind"])
        return await performing.keep(call, msgspec.json.encode(ids), soon=not ids)


async def _do_nothing(run: object, task: InboxTask) -> None: ...


def _take(kind: str | None) -> list[str]:
    """What identifies a call of `take`."""
    raise NotImplementedError
