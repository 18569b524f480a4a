"""What an agent sees: the run, its plan, its items, its conversation."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

import msgspec
from msgspec import Raw

from ..workspace import blobs, messagefile
from ..workspace.errors import AgentError, UsageError
from ..workspace.names import check_path
from ..workspace.record import Message, Output
from ..workspace.todo import Plan, Splice, Task
from .calls import RunParameter, current_scope
from .codec import encode
from .scope import ScopeRun, check_outside_steps, current_call
from .session import Session

S = TypeVar("S")
T = TypeVar("T")


class Run(RunParameter, Generic[S]):
    """A run of an agent over a workspace. Handed to the agent's function; lives as long as the process.

    `state` is the agent's own, of the type given to `@agent(state=...)`. Change it only inside a scope (an item's
    function, or one called with `run.scope`): the changes are kept when the scope commits, and undone if it fails.
    """

    def __init__(self, session: Session):
        self._session = session
        self.todo = Todo(session)
        self.messages = Messages(session)

    @property
    def id(self) -> str:
        return self._session.moment.run_id

    @property
    def attempt(self) -> int:
        """1 at the first start, one more at every later one."""
        return self._session.moment.attempt

    @property
    def settings(self) -> Mapping[str, Any]:
        """`settings:` of workspace.yaml."""
        return self._session.workspace.definition.settings

    @property
    def folder(self) -> str:
        """Where the workspace lies."""
        return self._session.store.url

    @property
    def state(self) -> S:
        return self._session.state  # type: ignore[no-any-return]

    @state.setter
    def state(self, value: S) -> None:
        self._session.state = value

    async def plan(self, title: str | None, items: Sequence[str]) -> None:
        """Add a heading and open items to todo.md."""
        await self._session.replan(lambda plan: plan.write(title, list(items)), "planned")

    @overload
    async def scope(self, name: str, function: Callable[..., Awaitable[T]], *args: Any) -> T: ...
    @overload
    async def scope(self, name: str, function: Callable[..., T], *args: Any) -> T: ...
    async def scope(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function(*args)` as a scope: what it does commits as one, and once it has, its recorded result is
        the answer. Names are unique within a run."""
        return await self._session.run_scope(name, function, args)

    async def output(self, name: str, content: str | bytes) -> str:
        """Write `outputs/NAME`, atomically and durably; its hash is recorded when the scope commits. Returns the path
        within the workspace. Writing it again replaces it."""
        scope = self._scope("run.output()")
        path = check_path(f"outputs/{name}")
        data = content.encode() if isinstance(content, str) else bytes(content)
        self._session.store.replace(path, data)
        scope.outputs[name] = Output(hashlib.sha256(data).hexdigest(), len(data))
        return path

    async def progress(self, value: Any) -> None:
        """Save how far a long step has come; its next attempt finds it in `run.saved_progress`. Only inside a step."""
        call = current_call.get()
        if call is None:
            raise AgentError("run.progress() was called outside a step", remedy="a scope's own progress is its steps")
        await call.scope.progress(call, value)

    @property
    def saved_progress(self) -> Any:
        """What an earlier attempt of this step saved last, or None."""
        call = current_call.get()
        scope = self._session.moment.scopes.get(call.scope.key) if call else None
        saved = scope.progress.get(call.key) if call and scope else None
        return None if saved is None else msgspec.json.decode(saved)

    async def checkpoint(self) -> None:
        """Write a checkpoint now, at a milestone."""
        self._session.journal.flush()
        self._session.workspace.checkpoint()

    def _scope(self, what: str) -> ScopeRun:
        check_outside_steps(f"{what} was called")
        scope = self._session.scope
        is_here = current_scope.get() is scope
        if scope is not None and is_here:
            return scope
        raise AgentError(
            f"{what} was called outside a scope",
            why="what is not part of a commit would be done again at every start",
            remedy="call it in an item's function, or in one called with run.scope(...)",
        )


class Item:
    """One task of the plan, as it is now."""

    def __init__(self, session: Session, id: str):
        self._session, self.id = session, id
        self.skipped: str | None = None

    def _task(self) -> Task:
        task = self._session.plan.task(self.id)
        if task is None:
            raise UsageError(f"the item ^{self.id} is not in todo.md any more")
        return task

    @property
    def text(self) -> str:
        return self._task().text

    @property
    def done(self) -> bool:
        return self._task().mark == "done"

    def skip(self, reason: str) -> None:
        """Cancel the item: when its function returns, it is marked `[-]` instead of ticked."""
        self.skipped = reason

    @property
    def result(self) -> Any:
        """What the item's function returned, once it has committed; else None."""
        kept = self._session.moment.results.get(self.id)
        return None if kept is None else msgspec.json.decode(blobs.fetch(self._session.store, kept))

    def __repr__(self) -> str:
        return f"<item {self.text!r} ^{self.id}>"


class Todo:
    """The plan, todo.md. Changes are kept at once outside a scope, and with its commit inside one."""

    def __init__(self, session: Session):
        self._session = session

    @property
    def items(self) -> Sequence[Task]:
        """All tasks in the order of the file; they have `text`, `mark`, `id`, `children`."""
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

    async def each(self, work: Callable[[Run[Any], Item], Any]) -> None:
        """Do `work(run, item)` for every open leaf, in order. The plan is looked at again after each."""
        plan = self._session.plan
        if not plan.progress.leaves:
            raise AgentError(
                "todo.md has no items", why="a plan without items is not a finished plan",
                remedy="add lines like `- [ ] the task`, or call run.plan(...) first",
            )  # fmt: skip
        while (task := self._session.plan.next_leaf()) is not None:
            await self._session.run_item(task, lambda id: Item(self._session, id), work)

    async def add(self, text: str, *, after: Task | str | None = None, under: Task | str | None = None) -> None:
        """Add an open item: after another and what belongs to it, as the last below another, or at the end."""

        def edit(plan: Plan) -> list[Splice]:
            return plan.add([text], after=self._near(after), under=self._near(under))

        await self._session.replan(edit, "added")

    async def cancel(self, item: Task | str) -> None:
        """Mark an item, and what is open below it, as cancelled."""
        await self._session.replan(lambda plan: plan.cancel(self._find(item)), "cancelled")

    async def note(self, item: Task | str, text: str) -> None:
        """Write a remark below an item."""
        await self._session.replan(lambda plan: plan.note(self._find(item), text), "noted")

    def _near(self, item: Task | str | None) -> Task | None:
        return None if item is None else self._find(item)

    def _find(self, item: Task | str | Item) -> Task:
        """By sticky id, or by text: what a person would point at."""
        plan = self._session.plan
        if isinstance(item, Task) and item.id is None:
            return item
        word = item if isinstance(item, str) else str(item.id)
        if found := plan.task(word):
            return found
        by_text = [task for task in plan.tasks if task.text == word]
        if len(by_text) == 1:
            return by_text[0]
        raise UsageError(
            f"no item {word!r} in todo.md" if not by_text else f"several items read {word!r}",
            remedy="name it by its id, without the ^",
        )


class _Items(Sequence[Task]):
    """The tasks of a plan as it is now, made one by one: to ask whether there are any must not cost 10,000 of them."""

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


class Messages:
    """The conversation, messages.jsonl: only added to, inside a scope, and kept with its commit."""

    def __init__(self, session: Session):
        self._session = session
        self._rows: list[tuple[str, Any]] | None = None
        self._read_to = 0

    def add(self, role: str, content: Any) -> None:
        """Add one message; `content` is text or any JSON."""
        scope = self._session.run._scope("run.messages.add()")
        scope.messages.append(Message(scope=scope.key, role=role, content=Raw(encode(content, "the message"))))

    def all(self) -> list[dict[str, Any]]:
        """Oldest first, those of the scope at work included, as `{"role": ..., "content": ...}`."""
        session = self._session
        session.workspace.files.messages.write()
        if self._rows is None or self._read_to != session.moment.messages:
            self._rows = [(row.role, row.content) for row in messagefile.read(session.store)]
            self._read_to = session.moment.messages
        fresh = session.scope.messages if session.scope else []
        rows = [*self._rows, *((message.role, msgspec.json.decode(message.content)) for message in fresh)]
        return [{"role": role, "content": content} for role, content in rows]

    def last(self, count: int) -> list[dict[str, Any]]:
        """The newest `count` messages, oldest first."""
        return self.all()[-count:] if count > 0 else []

    def __len__(self) -> int:
        fresh = self._session.scope.messages if self._session.scope else []
        return self._session.moment.messages + len(fresh)
