"""`Run`: the object that an agent gets, with its plan, `run.todo`. Methods import what they need, because every agent
file imports this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import msgspec

from ...workspace.base import AgentError, UsageError
from ..agent import P, RunParameter, S, awaited, canonical, current_scope

if TYPE_CHECKING:
    from ...workspace.base import Resume
    from ...workspace.plan import Plan, Splice, Task
    from ..agent import Agent, Prompt
    from ..engine import ScopeRun, Session
    from .ask import Answer
    from .resources import OpenResources
    from .run_inbox import Offer


T = TypeVar("T")


class Run(RunParameter, Generic[S]):
    """A run of an agent over a workspace. The agent's function gets it; it is valid as long as the process.

    `state` has the type that was given to `@agent(state=...)`. Change it only inside a scope: in an item's function, or
    one called with `run.scope`. A commit of the scope keeps the changes, a failure undoes them.
    """

    def __init__(self, session: Session, pool: OpenResources, offer: Offer):
        from .messages import Messages
        from .resources import Resources
        from .run_inbox import Inbox

        self._session = session
        self._loop = asyncio.get_running_loop()
        self.resources = Resources(session, pool)
        self.todo = Todo(session)
        self.messages = Messages(session)
        self.inbox = Inbox(session, offer)

    @staticmethod
    def current() -> Run[Any] | None:
        """The run that the calling code belongs to, or None outside a run. For code that gets no `run`, such as a tool
        that another framework calls."""
        from ..engine import ScopeRun

        scope = current_scope.get()
        return scope.agent.run if isinstance(scope, ScopeRun) else None

    @property
    def id(self) -> str:
        return self._session.context.moment.run_id

    @property
    def agent(self) -> str:
        """The path of this agent in the tree, `researcher/reader`. Empty for the root agent."""
        return self._session.path

    @property
    def attempt(self) -> int:
        """The number of this start: 1 at the first."""
        return self._session.context.moment.attempt

    @property
    def settings(self) -> Mapping[str, Any]:
        """`settings:` of workspace.yaml."""
        return self._session.context.workspace.definition.settings

    @property
    def instructions(self) -> str:
        """The `instructions:` that a person wrote into pause.yaml for the last pause that is over, or an empty text.
        Kept through crashes until the next pause is over."""
        return self._session.context.moment.instructions

    @property
    def folder(self) -> str:
        """The folder or URL of the workspace."""
        return self._session.store.url

    @property
    def state(self) -> S:
        return self._session.state.value  # type: ignore[no-any-return]

    @state.setter
    def state(self, value: S) -> None:
        self._session.state.value = value

    @awaited("run.plan")
    async def plan(self, title: str | None, items: Sequence[str]) -> None:
        """Write a heading and open items into todo.md, once. A later equal call does nothing, whatever people have
        changed in the plan since. AgentError for a different plan while todo.md has items, also those of a person. So
        call it behind `if not run.todo.items:`, and add items with `run.todo.add`."""
        await _write_plan(self._session, title, items)

    @overload
    async def scope(self, name: str, function: Callable[..., Awaitable[T]], *args: Any) -> T: ...
    @overload
    async def scope(self, name: str, function: Callable[..., T], *args: Any) -> T: ...
    @awaited("run.scope")
    async def scope(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function(*args)` as a scope, which commits as one. Once it has committed, an equal call returns its
        recorded result. Names are unique within a run. Several tasks may call this at once: each scope then has its own
        copy of `run.state`, and its changes are merged when it commits."""
        return await self._session.run_scope(name, function, args)

    @awaited("run.output")
    async def output(self, name: str, content: str | bytes | bytearray | memoryview) -> str:
        """Write `outputs/NAME` in the agent's folder, atomically and durably. The commit of the scope records its hash.
        Returns the path within the workspace. A second call replaces the file. A version from another program is kept
        as `NAME.rejected.EXT`. Text is redacted. AgentError for other bytes with a secret, UsageError for a name that
        not every disk and bucket can hold."""
        from ...workspace.base import arguments, check_new

        session = self._session
        session.open_scope("run.output()")
        path = check_new(f"{session.folder}outputs/{arguments.text('the name of an output', name)}")
        if isinstance(content, bytes | bytearray | memoryview):
            content = bytes(content)
        elif isinstance(content, str):
            arguments.text(f"the text of the output {name!r}", content)
        else:
            raise TypeError(f"an output is text or bytes, not {type(content).__qualname__}: {path}")
        data = session.context.redactor.output(path, content)
        session.journal.flush()  # others can see the output, so the records before it must be durable
        await session.context.stopping.check_has_it()  # else it could replace an output of a new owner
        scope = session.open_scope("run.output()")  # it may have ended meanwhile
        scope.outputs[name] = session.context.outputs.write(session.recorded, name, path, data)
        return path

    @awaited("run.progress")
    async def progress(self, value: Any) -> None:
        """Save the progress of a long step; its next attempt reads it from `run.saved_progress`. Only inside a step."""
        from ..engine import current_call, performing

        call = current_call.get()
        if call is None:
            raise AgentError("run.progress() was called outside a step", remedy="a scope's own progress is its steps")
        await performing.keep_progress(call, value)

    @property
    def saved_progress(self) -> Any:
        """The value that an earlier attempt of this step saved last, or None."""
        from ..engine import current_call

        call = current_call.get()
        scope = self._session.recorded.scopes.get(call.scope.key) if call else None
        saved = scope.progress.get(call.key) if call and scope else None
        return None if saved is None else msgspec.json.decode(saved)

    def refer(self, reference: str) -> None:
        """Declare that the run needs what is at `reference`: a path (relative to the workspace, or absolute), an http
        address, or any URL that fsspec opens. Each later start checks that it exists; if not, the run pauses.

        What it holds is recorded, too: the SHA-256 of a file, the version or ETag of an object or an address. A later
        start says if it has changed; `on_reference:` in workspace.yaml says what then. Name it again after the agent
        has changed it itself."""
        from ...workspace.base import arguments
        from .resources import refer

        if not isinstance(reference, str) or not reference:
            raise UsageError("run.refer() takes a path or a URL", why=f"got {reference!r}")
        arguments.text("the reference in run.refer()", reference)
        refer(self._session.context, reference)

    @awaited("run.checkpoint")
    async def checkpoint(self) -> None:
        """Write a checkpoint now, at a milestone. After a forced stop `satchel resume --from-checkpoint` returns to the
        last one before it. An item in todo.md with a line `milestone: true` gets one when it is done."""
        self._session.journal.flush()
        self._session.context.workspace.checkpoint("milestone")

    @awaited("run.durable")
    async def durable(self) -> None:
        """Return when all that is on record by now is durable: what has committed, and the results of steps. A step
        alone does not wait for that, since losing its result only repeats it."""
        await self._scope("run.durable()").durable()

    @awaited("run.spawn")
    async def spawn(self, agent: Agent[P, T], name: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a sub-agent, `agent(run, *args, **kwargs)`, and return its result. It has its own plan, state, scopes and
        files in `agents/NAME/`. Several may run at once (`asyncio.gather`), to any depth.

        Once it has returned, an equal call returns its recorded result. A call with other arguments enters it again,
        without its finished items. Its exception is raised here. Names are unique within the spawning agent: letters,
        digits, `-` and `_`.
        """
        from .own_steps import spawn

        result: T = await spawn(self._session, agent, name, args, kwargs)
        return result

    def prompt(self, name: str, /, **values: Any) -> Prompt:
        """The text of `prompts/NAME.md` in the workspace, with `values` in place of `{{name}}`.

        Its version is the start of the file's SHA-256. It is recorded with the step that reads it, or that gets the
        whole text as an argument, and Satchel keeps the text of that version. With `prompts: pinned` in workspace.yaml
        the run keeps using the version that it began with, or has used first.
        """
        from .resources import read_prompt

        return read_prompt(self._session, self._loop, name, values)

    @awaited("run.sleep")
    async def sleep(self, duration: float | timedelta | datetime) -> None:
        """Wait for so many seconds, or until a time. The wait is recorded: a long one ends the process (`sleeping`),
        and a finished one is not repeated."""
        from .own_steps import sleep

        await sleep(self._scope("run.sleep()"), duration)

    @awaited("run.ask")
    async def ask(
        self,
        question: str,
        choices: Sequence[str] | None = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        tool: str = "",
        schema: type | dict[str, Any] | bool | None = None,
        context: Any = None,
        expires: float | timedelta | datetime | None = None,
        default: Any = None,
        wait_for: float = 10.0,
    ) -> Answer:
        """Ask a person and return the answer: one of `choices`, a value that fits `schema` (a JSON Schema or a type),
        or any text.

        `arguments` are those of the call that the question is about. The choices are then `approve` and `deny`, and a
        person may approve other arguments, which fit `schema`, or without one have the same kinds. Make the call with
        `answer.arguments`, and read them before the decision: an answer that changes some raises UsageError otherwise.
        With `tool`, the name of that call, a person may also approve all later calls of it by this agent, as long as
        the code stays the same. Then the question is answered at once.

        The question is a file in `approvals/`. A person types the answer into it or uses `satchel answer`. The answer
        is on record before this returns, and stays the answer however often the scope is entered again. Questions are
        equal if text, choices, schema, arguments, tool and `context` are equal in the same scope; a second equal call
        in one scope is a question of its own.

        After `wait_for` seconds the run stops as `waiting`, without a process. Under `satchel serve` it stops at once
        if nothing else runs. When the question `expires` (after so many seconds, or at a time), `default` is the
        answer. Not for use in a step.
        """
        from .ask import PendingQuestion, ask

        asking = PendingQuestion(question, choices, arguments, tool, schema, context, expires, default, wait_for)
        return await ask(self._scope("run.ask()"), asking)

    @awaited("run.pause")
    async def pause(self, reason: str = "manual", *, resume: Resume = "continue") -> None:
        """Pause the whole run, as a pause.yaml does: running work finishes, and nothing more begins. This call stops
        here, or at the end of an uninterrupted block.

        It asks once: after the run has resumed, an equal call in the same scope returns at once. `reason` is shown to
        people. `resume` says how the run resumes: `continue`; `restart_step`, which repeats what was cut off from its
        beginning; or `await_instructions`, not before a person has written some (`run.instructions`).
        """
        from .own_steps import pause

        await pause(self._scope("run.pause()"), reason, resume)

    def spend(self, *, tokens: int = 0, usd: float = 0.0, output_tokens: int = 0, model: str = "") -> None:
        """Record a cost against `budget:` of workspace.yaml. May be called from any thread. `output_tokens`: those of
        the `tokens` that the `model` has written; these two are for events and traces.

        In a step it counts each time the step really runs, and is durable with the step's result. Elsewhere it is
        identified by its scope, its amounts and the number of equal ones before it, so an item that is entered again
        does not pay twice. When the budget is used up, no step or item begins, and the run pauses. UsageError for a
        negative amount, or no amount.
        """
        from ...workspace.journal import Spent
        from ..engine import ScopeRun, current_call
        from ..live import limits

        tokens, usd = limits.checked_cost(tokens, usd, output_tokens, model)
        call, scope = current_call.get(), current_scope.get()
        if call is not None:
            at, counts = call.scope, None
            call.has_spent = call.has_spent or tokens > 0 or usd > 0
        elif isinstance(scope, ScopeRun):
            at, counts = scope, scope.spent
        else:
            at, counts = self._session.root, None  # a thread of the agent that has no scope
        spent = Spent(
            agent=at.agent.path,
            scope=at.key,
            no=call.no if call is not None else None,
            tokens=tokens,
            usd=usd,
            output=output_tokens,
            model=model,
        )
        self._session.context.limits.spend(spent, counts)

    @asynccontextmanager
    async def uninterrupted(self, name: str) -> AsyncIterator[None]:
        """A stop waits for the end of this block. `name` is shown as what it waits for. Not guaranteed: anything
        against a second signal, a kill, or a power failure."""
        from ...workspace.base import arguments

        scope = self._scope("run.uninterrupted()")
        arguments.text("the name in run.uninterrupted()", name)
        with scope.work, self._session.context.stopping.drain.held(name):
            yield

    def _scope(self, what: str) -> ScopeRun:
        from ..engine import ScopeRun

        scope = current_scope.get()
        if not isinstance(scope, ScopeRun) or scope.agent is not self._session:
            raise AgentError(f"{what} was called with another agent's run", remedy="use the `run` of this agent")
        return scope


# run.todo: the plan and its items


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

        entry.check_parallel("run.todo.each()", parallel)
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


def _text(session: Session, name: str, text: str) -> str:
    """A text from the agent without secrets. UsageError names what it is if it is none."""
    from ...workspace.base import arguments

    return session.context.redactor.text(arguments.text(name, text))


async def _write_plan(session: Session, title: str | None, items: Sequence[str]) -> None:
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
