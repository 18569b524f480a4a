"""What an agent sees of its run. Methods import what they do: an agent's file imports this for its annotations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import msgspec

from ...workspace.base import AgentError, UsageError
from ..steps import RunParameter, current_scope
from . import plan as todolist
from .plan import Todo

if TYPE_CHECKING:
    from ...workspace.base import Resume
    from ..agent import Agent
    from ..engine import ScopeRun, Session
    from ..steps import Prompt
    from .answer import Answer
    from .inbox import Offer
    from .resources import Pool

S = TypeVar("S")
T = TypeVar("T")


class Run(RunParameter, Generic[S]):
    """A run of an agent over a workspace. Handed to the agent's function; lives as long as the process.

    `state` is the agent's own, of the type given to `@agent(state=...)`. Change it only inside a scope (an item's
    function, or one called with `run.scope`): the changes are kept when the scope commits, and undone if it fails.
    """

    def __init__(self, session: Session, pool: Pool, offer: Offer):
        from .inbox import Inbox
        from .messages import Messages
        from .resources import Resources

        self._session = session
        self.resources = Resources(session, pool)
        self.todo = Todo(session)
        self.messages = Messages(session)
        self.inbox = Inbox(session, offer)

    @property
    def id(self) -> str:
        return self._session.context.moment.run_id

    @property
    def agent(self) -> str:
        """The path of this agent in the tree, `researcher/reader`; empty for the root."""
        return self._session.path

    @property
    def attempt(self) -> int:
        """1 at the first start, one more at every later one."""
        return self._session.context.moment.attempt

    @property
    def settings(self) -> Mapping[str, Any]:
        """`settings:` of workspace.yaml."""
        return self._session.context.workspace.definition.settings

    @property
    def instructions(self) -> str:
        """What a person wrote as `instructions:` into pause.yaml when the last pause was over, or the empty text. It
        stays, through crashes, until the next pause is over."""
        return self._session.context.moment.instructions

    @property
    def folder(self) -> str:
        """Where the workspace lies."""
        return self._session.store.url

    @property
    def state(self) -> S:
        return self._session.state  # type: ignore[no-any-return]

    @state.setter
    def state(self, value: S) -> None:
        _ = self.state  # only from where it can be read
        self._session.live.value = value

    async def plan(self, title: str | None, items: Sequence[str]) -> None:
        """Write a heading and open items into todo.md, once. A later call with equal arguments does nothing, whatever
        people have made of the plan since. AgentError for another one while todo.md has items, a person's too: guard
        the call with `if not run.todo.items:`, and add to a plan with `run.todo.add`."""
        await todolist.write(self._session, title, items)

    @overload
    async def scope(self, name: str, function: Callable[..., Awaitable[T]], *args: Any) -> T: ...
    @overload
    async def scope(self, name: str, function: Callable[..., T], *args: Any) -> T: ...
    async def scope(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function(*args)` as a scope: what it does commits as one, and once it has, its recorded result is
        the answer. Names are unique within a run."""
        return await self._session.run_scope(name, function, args)

    async def output(self, name: str, content: str | bytes) -> str:
        """Write `outputs/NAME` in the agent's folder, atomically and durably; its hash is recorded when the scope
        commits. Returns the path within the workspace. Writing it again replaces it. A version that another program has
        put there is kept as `NAME.rejected.EXT`."""
        from ...workspace.base import check_path

        session = self._session
        session.open_scope("run.output()")
        path = session.folder + check_path(f"outputs/{name}")
        data = content.encode() if isinstance(content, str) else bytes(content)
        session.journal.flush()  # it can be seen, so nothing it was made of may be lost
        await session.context.stopping.check_has_it()  # else it may take the place of what another owner has made
        scope = session.open_scope("run.output()")  # it may have ended meanwhile
        scope.outputs[name] = session.context.outputs.write(session.recorded, name, path, data)
        return path

    async def progress(self, value: Any) -> None:
        """Save how far a long step has come; its next attempt finds it in `run.saved_progress`. Only inside a step."""
        from ..engine import current_call

        call = current_call.get()
        if call is None:
            raise AgentError("run.progress() was called outside a step", remedy="a scope's own progress is its steps")
        await call.scope.progress(call, value)

    @property
    def saved_progress(self) -> Any:
        """What an earlier attempt of this step saved last, or None."""
        from ..engine import current_call

        call = current_call.get()
        scope = self._session.recorded.scopes.get(call.scope.key) if call else None
        saved = scope.progress.get(call.key) if call and scope else None
        return None if saved is None else msgspec.json.decode(saved)

    def refer(self, reference: str) -> None:
        """Say that the run needs what lies at `reference`: a path, from the workspace or absolute, an http address, or
        any URL that fsspec opens. At each later start it is looked whether it is there; if not, the run pauses."""
        from .referring import refer

        if not isinstance(reference, str) or not reference:
            raise UsageError("run.refer() takes a path or a URL", why=f"got {reference!r}")
        refer(self._session.context.workspace, reference)

    async def checkpoint(self) -> None:
        """Write a checkpoint now, at a milestone: `satchel resume --from-checkpoint` goes back to the last one before a
        stop by force. An item whose text in todo.md has a line `milestone: true` gets one when it is done."""
        self._session.journal.flush()
        self._session.context.workspace.checkpoint("milestone")

    async def spawn(self, agent: Agent, name: str, *args: Any, **kwargs: Any) -> Any:
        """Run a sub-agent, `agent(run, *args, **kwargs)`, and return what it returns. Its plan, state, scopes and files
        are its own, in `agents/NAME/`; several may be at work at once (`asyncio.gather`), to any depth.

        Once it has returned, its recorded result is the answer, as long as the arguments are equal; with other ones it
        is entered again, its finished items not visited. An exception of it is raised here. Names are unique within
        the agent that spawns; letters, digits, `-` and `_`.
        """
        from .spawning import spawn

        return await spawn(self._session, agent, name, args, kwargs)

    def prompt(self, name: str, /, **values: Any) -> Prompt:
        """The text of `prompts/NAME.md` in the workspace, with `values` put into its places `{{name}}`.

        Its version, the start of the file's SHA-256, is recorded with the step that reads it, or that gets it whole as
        an argument.
        """
        from ..engine import current_call
        from ..steps import prompt

        made = prompt.read(self._session.store, name, values)
        if (call := current_call.get()) is not None:
            call.prompts[name] = made.version
        return made

    async def sleep(self, duration: float | timedelta | datetime) -> None:
        """Wait for so many seconds, or until a time. The wait is kept: a long one ends the process (`sleeping`) and
        goes on when the run is resumed after its end; one that is over is not waited for again."""
        from .sleeping import sleep

        await sleep(self._scope("run.sleep()"), duration)

    async def ask(
        self, question: str, choices: Sequence[str] | None = None, *, schema: dict[str, Any] | bool | None = None,
        context: Any = None, expires: float | timedelta | datetime | None = None, default: Any = None,
        wait_for: float = 10.0,
    ) -> Answer:  # fmt: skip
        """Ask a person, and return the answer: one of `choices`, or what a JSON Schema describes, or any text.

        The question is a file in `approvals/`; the answer is typed into it, or given with `satchel answer`. It is on
        record before this returns, and stays the answer however often the scope is begun anew; equal are questions
        with the same words, choices, schema and `context`, in the same scope. After `wait_for` seconds the run stops,
        `waiting`, and no process is needed. Once the question `expires` (in so many seconds, or at a time) `default`
        is the answer. Under `satchel serve` it stops at once if nothing else is at work: other runs
        wait for their turn. A second equal call in one scope is a question of its own. Not for the inside of a step.
        """
        from .ask import Asking, ask

        asking = Asking(question, choices, schema, context, expires, default, wait_for)
        return await ask(self._scope("run.ask()"), asking)

    async def pause(self, reason: str = "manual", *, resume: Resume = "continue") -> None:
        """Let the whole run stop, as a pause.yaml does: what is at work is finished, and nothing more is begun. This
        call itself stops, unless it is in a part that must not be interrupted; then the end of that does.

        It is asked once: when the run is gone on with, an equal call in the same scope returns at once. `reason` is
        what people are told. `resume` is how it is to go on: `continue`; `restart_step`, what was cut off begins anew;
        or `await_instructions`, not before a person has left some (`run.instructions`).
        """
        from .pausing import pause

        await pause(self._scope("run.pause()"), reason, resume)

    def spend(self, *, tokens: int = 0, usd: float = 0.0) -> None:
        """Put on record what something has cost, against `budget:` of workspace.yaml. From any thread.

        In a step it counts each time the step really runs, and is durable with the step's result. Outside one it is
        known as a call is, by its scope, its amounts and how many equal ones came before, so that an item that is
        entered again does not pay twice. Once the budget is used up no step or item begins any more, and the run is
        paused. UsageError for a negative amount, or none at all.
        """
        from ..engine import ScopeRun, current_call
        from ..limits import budget

        tokens, usd = budget.checked(tokens, usd)
        call, scope = current_call.get(), current_scope.get()
        if call is not None:
            at, counts = call.scope, None
        elif isinstance(scope, ScopeRun):
            at, counts = scope, scope.spent
        else:
            at, counts = self._session.root, None  # a thread of the agent's own, that does not know where it is
        self._session.context.limits.spend(at.agent.path, at.key, tokens, usd, counts)

    @asynccontextmanager
    async def uninterrupted(self, name: str) -> AsyncIterator[None]:
        """What is in the body is not interrupted: a stop waits for its end. `name` says what is waited for. Not
        guaranteed: anything against a second signal, a kill, or a power failure."""
        scope = self._scope("run.uninterrupted()")
        with scope.busy(), self._session.context.stopping.drain.held(name):
            yield

    def _scope(self, what: str) -> ScopeRun:
        from ..engine import ScopeRun

        scope = current_scope.get()
        if not isinstance(scope, ScopeRun) or scope.agent is not self._session:
            raise AgentError(f"{what} was called with another agent's run", remedy="use the `run` of this agent")
        return scope
