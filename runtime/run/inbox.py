"""The inbox, as an agent sees it: work and messages that arrive from outside while the run is going, or before.

Taken is a record, which is durable before the agent sees the task; done is a record, too, in one group with the commit
of what was done. So no task is lost, and none is done twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakSet

import msgspec
from msgspec.structs import replace

from ...workspace.base import AgentError, InvalidFile
from ...workspace.journal.records import TaskDone, TaskTaken
from ...workspace.people.inbox import Arrivals, Found, Offered, archive, inbox
from ...workspace.state import ROOT, blobs, scope_of_task
from ...workspace.views import BRIEF, PATIENCE, stable_read
from ..engine import Call, ScopeRun, Session, check_outside_steps
from ..steps import Retry, Step, current_scope

Kind = Literal["task", "message", "schedule"]

_LONGEST = 60.0
"""Seconds that the end of the inbox is put off for files which a program has open for writing."""


@dataclass(frozen=True, slots=True)
class InboxTask:
    """A file that was dropped into `inbox/`: `text` is what a `.md` says, `data` what a `.yaml` says. A message has a
    `text`. The `data` of a `schedule` are its name and the time it was due, `{"schedule": "1", "due":
    "2026-11-23T07:30:00Z"}`."""

    id: str
    name: str  # of the file
    kind: Kind
    text: str
    data: Any = None


@dataclass(slots=True)
class Offer:
    """What the inbox has offered to the root agent since it was entered."""

    files: Offered
    is_open: bool = False  # the agent has asked for tasks, those of its schedule included


class Inbox:
    """The root agent's inbox. Tasks are given one by one by `each` and by the loop; messages come with `take`."""

    def __init__(self, session: Session, offer: Offer):
        self._session, self._offer = session, offer
        self._store, self._moment = session.store, session.context.moment
        self._arrivals = Arrivals(self._store, self._moment)
        self._queue: deque[str] = deque()  # found by the last look, and not asked for yet
        self._loops: WeakSet[_Tasks] = WeakSet()  # those that may still ask for the next task
        self._told: set[str] = set()  # files that can't be taken, nor moved

    def __len__(self) -> int:
        """How many files wait, messages included."""
        self._check_is_root()
        return len(inbox.waiting(self._store, self._moment))

    async def each(self, work: Callable[[Any, InboxTask], Any]) -> None:
        """Do `work(run, task)` for every task in the order of their names, as a scope each; also for those that arrive
        meanwhile, and for those of the schedule. Returns when none is left. One that fails is tried again, and pauses
        the run when it has failed three times. One that was begun is dropped when a file of its name lies in
        `inbox/cancelled/`."""
        while (task := await self._next(in_own_scope=True)) is not None:
            try:
                if self._is_dropped(task):  # its scope commits without a call, unless an effect of it is in doubt
                    wish = f"{archive.CANCELLED}/{task.name}"
                    await self._session.run_task(task.id, task.name, _do_nothing, task, wish)
                else:
                    await self._session.run_task(task.id, task.name, work, task)
            except Exception as error:
                if not Retry().is_worth_it(error):
                    raise  # a mistake, which is there at the next attempt too
                way_out = f". To drop it, move its file into {archive.CANCELLED}/"
                await self._session.wait_to_try_again(scope_of_task(task.id), error, way_out)

    def __aiter__(self) -> AsyncIterator[InboxTask]:
        """The tasks one by one, in the order of `each`; one is done when the next is asked for. After a crash the one
        that was not done is given again: what it does belongs into `run.scope(task.id, ...)`, whose result is kept.
        Several loops at once share the tasks: none is given to two of them."""
        loop = _Tasks(self)
        self._loops.add(loop)
        return loop

    async def _following(self, id: str) -> InboxTask | None:
        """The next task for a loop that is done with the task `id`, if it had one."""
        if id in self._moment.tasks:
            self._end(id)
        return await self._next(in_own_scope=False)

    async def take(self, kind: Kind | None = None) -> list[InboxTask]:
        """What has arrived so far, in an item's function or another scope: tasks and messages, or only those of one
        kind. They are done when the scope commits. If it is entered again, an equal call gets the same ones."""
        self._check_is_root()
        scope = self._session.open_scope("run.inbox.take()")
        self._offer.is_open |= kind in (None, "schedule")
        ids: list[str] = await scope.call(_Take(self), (kind,), {})
        scope.tasks += [id for id in ids if id not in scope.tasks]
        return [self._task(self._moment.tasks[id]) for id in ids if id in self._moment.tasks]

    # One by one

    async def _next(self, *, in_own_scope: bool) -> InboxTask | None:
        """The next task, taken durably into a scope of its own, or into none. First those that were taken before and
        are not done."""
        self._check_is_root()
        self._check_between_scopes()
        self._session.check_going_on()
        self._offer.is_open = True
        tasks = [task for task in self._moment.tasks.values() if task.kind != "message" and self._is_free(task)]
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
        """Whether a person has dropped it after it was begun. What nobody has begun they can simply remove."""
        is_begun = scope_of_task(task.id) in self._session.recorded.scopes
        return is_begun and archive.is_cancelled(self._store, self._moment.tasks[task.id].file)

    def _is_free(self, task: TaskTaken) -> bool:
        """Whether it is in no scope, but its own, that would go on with it."""
        is_own = task.scope in (ROOT, scope_of_task(task.id))
        is_left = is_own or task.scope not in self._session.recorded.scopes
        return not task.handed_to and is_left and not self._is_held(task.id)

    def _is_held(self, id: str) -> bool:
        """Whether a loop was given this task, and has not asked for the next."""
        return any(loop.current == id for loop in self._loops)

    async def _next_file(self) -> Found | None:
        """The next file that is a task, once it has settled; None if there is none, or all the others are being saved
        for very long."""
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
            await asyncio.sleep(stable_read.WAITS.look)
            self._session.check_going_on()

    def _from_queue(self) -> Found | None:
        while self._queue:
            found = self._read(self._queue.popleft())
            if found is not None and found.said.kind != "message":
                return found
        return None

    def _end(self, id: str) -> None:
        """A task that has no scope of its own is done, or dropped."""
        self._session.journal.add(TaskDone(id=id))
        self._session.journal.flush()
        archive.put_away(self._store, self._moment)

    # Several at once

    async def taken_in(self, scope: ScopeRun, kind: Kind | None) -> list[str]:
        """The ids of what an earlier attempt at the scope has taken without an answer on record, and of what has
        arrived, taken durably. For the step below."""
        until = time.monotonic() + BRIEF
        self._look()
        while self._arrivals.are_changing and time.monotonic() < until:
            await asyncio.sleep(stable_read.WAITS.look)
            self._look()
        self._queue.clear()
        self._session.check_going_on()
        answered = {
            id for step in scope.recorded.done.values() if step.step == _Take.name
            for id in msgspec.json.decode(blobs.fetch(self._store, step), type=list[str])
        }  # fmt: skip
        left = [
            task for task in self._moment.tasks.values()
            if kind in (None, task.kind) and task.id not in answered and task.id not in scope.tasks
            and (task.scope == scope.key or self._is_left(task))
        ]  # fmt: skip
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
        """Whether a scope that has ended has left it undone, and nobody is at it."""
        is_ended = task.scope == ROOT or task.scope not in self._session.recorded.scopes
        return is_ended and not task.handed_to and not self._is_held(task.id)

    # What both need

    def _look(self) -> None:
        """Look once more."""
        self._arrivals.look()
        self._offer.files = self._arrivals.offered

    def _read(self, path: str) -> Found | None:
        """A file that was found, unless somebody has taken it meanwhile. One that can't be taken is refused."""
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
            context = self._session.context
            context.tally.noticed.append(said)
            if context.watch:
                context.watch.noticed("refused", said)

    def _record_of(self, found: Found, number: int) -> TaskTaken:
        """The `number`-th that is about to be recorded."""
        said = found.said
        task = TaskTaken(
            id=f"t{self._moment.tasks_taken + number}", scope=ROOT, file=found.path, sha256=found.sha256, kind=said.kind
        )
        if said.firing is not None:
            return replace(task, schedule=said.firing.schedule, due=said.firing.due)
        kept = blobs.keep(self._store, said.content, self._session.journal.epoch)
        return replace(task, content=kept.result, blob=kept.blob)

    def _record(self, tasks: list[TaskTaken]) -> None:
        """Durable when this returns; nobody else is at work meanwhile, so the ids are not given twice."""
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
                f"the agent {self._session.path!r} has no inbox", why="what arrives is for the run's own agent",
                remedy="let that one take it, and hand it to run.spawn(...) as an argument",
            )  # fmt: skip

    def _check_between_scopes(self) -> None:
        session = self._session
        if session.scope is not None or current_scope.get() is not session.root:
            raise AgentError(
                "the next task was asked for inside a scope", why="it would be done before that scope has committed",
                remedy="use `await run.inbox.take()` there, or ask outside it",
            )  # fmt: skip


class _Tasks:
    """One loop over the inbox. A task that it was given stays its own until it asks for the next, or is dropped."""

    def __init__(self, inbox: Inbox):
        self._inbox = inbox
        self.current = ""  # the task that it was given last

    def __aiter__(self) -> AsyncIterator[InboxTask]:
        return self

    async def __anext__(self) -> InboxTask:
        task = await self._inbox._following(self.current)
        self.current = "" if task is None else task.id
        if task is None:
            raise StopAsyncIteration
        return task


class _Take(Step[list[str]]):
    """To its scope, what was taken is the result of a step."""

    name = "inbox.take"

    def __init__(self, inbox: Inbox):
        super().__init__(_take, name=self.name, retry=None, on_partial="restart")
        self._inbox = inbox

    async def perform(self, call: Any) -> Any:
        assert isinstance(call, Call)
        ids = await self._inbox.taken_in(call.scope, call.arguments["kind"])
        return await call.scope.keep(call, msgspec.json.encode(ids), soon=not ids)


async def _do_nothing(run: object, task: InboxTask) -> None: ...


def _take(kind: str | None) -> list[str]:
    """What identifies a call of `take`."""
    raise NotImplementedError
