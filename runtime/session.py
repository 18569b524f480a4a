"""One run of an agent over an opened workspace: the live state and plan, and the scopes that commit them.

The moment (workspace/moment.py) is what is durable. `state` and `plan` here are the agent's, ahead of it by what the
scope at work has changed; when that scope fails they are made anew from the moment.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from ..workspace import blobs, patch
from ..workspace.errors import AgentError, UsageError
from ..workspace.moment import ROOT, Kept, Scope
from ..workspace.opening import Workspace
from ..workspace.record import OfCall, PlanChanged, ScopeBegun, ScopeCommitted
from ..workspace.todo import Plan, Splice, Task
from .agent import Agent
from .calls import current_scope
from .codec import ANY, Codec, encode
from .context import Context, Watch
from .interruption import Interruption
from .scope import ScopeRun, check_outside_steps


class ItemFace(Protocol):
    """What this needs of an item as the agent sees it (run.py)."""

    skipped: str | None


class Session(Context):
    """The context of one run, with the agent's state and plan, and the one scope at work."""

    def __init__(self, workspace: Workspace, agent: Agent, interruption: Interruption, watch: Watch | None = None):
        super().__init__(workspace, interruption, watch)
        self.agent = agent
        self.scope: ScopeRun | None = None  # the one at work, besides the root
        self.root = ScopeRun(self, ROOT, "", self.moment.scopes[ROOT])
        self.codec = Codec(agent.state, "the state")
        self.plan = self.moment.plan.copy()
        self.state: Any
        self._committed = b""  # the state of the last commit, as JSON
        self._splices: list[Splice] = []  # what the scope at work has changed in the plan

    def begin(self) -> None:
        """Take state and plan from the moment; in a new run, record what the state begins as."""
        if not self.moment.has_data:
            data = encode(self.agent.initial_state(), "the initial state")
            self.journal.add(ScopeCommitted(scope=ROOT, patch=[{"op": "add", "path": "", "value": Raw(data)}]))
            self.journal.flush()
            # The patch was applied as it is; from here on the data are JSON's own types.
            self.moment.data = msgspec.json.decode(data)
        self.rollback()

    def rollback(self) -> None:
        """The state as of the last commit, in a new object of the user's type."""
        self.state = self.codec.decode(encode(self.moment.data, "the state"))
        self._committed = encode(self.state, "the state")

    def check_state_unchanged(self, when: str) -> None:
        if encode(self.state, "run.state") != self._committed:
            was, found = msgspec.json.decode(self._committed), msgspec.json.decode(encode(self.state, "run.state"))
            changes = patch.diff(was, found)
            if not changes:
                return  # only the order of keys
            place = str(changes[0]["path"]).replace("/", ".")
            raise AgentError(
                f"run.state{place} was changed outside a scope", why=f"noticed {when}, and a crash would lose it",
                remedy="change run.state in an item's function, or in one called with run.scope(...)",
            )  # fmt: skip

    # The plan

    async def replan(self, edit: Callable[[Plan], list[Splice]], why: str) -> None:
        """Change the plan: at once outside a scope, with its commit inside one."""
        self.check_going_on()
        check_outside_steps("the plan was changed")
        if current_scope.get() is not self.scope is not None:
            raise AgentError(
                f"the plan was changed beside the scope {self.scope.title!r}", why="one scope at a time commits",
                remedy="change it in that scope's function, or when it has ended",
            )  # fmt: skip
        splices = edit(self.plan)
        splices += self.plan.identify(self.moment.highest_id)
        if not splices:
            return
        if self.scope is not None:
            self._splices += splices
            return
        outline = self.plan.outline() if _is_most_of(splices, self.plan) else []
        self.journal.add(PlanChanged(plan=tuple(splices), outline=outline, by="agent", why=why))
        self.journal.flush()
        self.projector.mark(self.workspace.files.todo)

    async def run_item(self, task: Task, make: Callable[[str], ItemFace], work: Callable[..., Any]) -> None:
        """Do one item, `make(id)` to the agent: its function is a scope, and its commit ticks it."""
        text = task.text
        self._check_may_begin(text)
        splices = self.plan.begin(task, self.moment.highest_id)
        key = self.plan.now(task).id
        assert key is not None, "a begun item has an id"
        item = make(key)
        if self.watch:
            self.watch.item_begun(text, *self.plan.progress)

        def finish() -> tuple[list[Splice], str | None]:
            found = self.plan.task(key)
            if found is None or found.mark == "cancelled":
                return [], item.skipped
            edit = self.plan.tick if item.skipped is None else self.plan.cancel
            return edit(found), item.skipped

        await self._run_scope(key, text, splices, work, (self.run, item), finish)
        if self.watch:
            self.watch.item_ended(text, *self.plan.progress)

    # Scopes

    async def run_scope(self, name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """A scope by name: answered with its recorded result once it has committed."""
        if not isinstance(name, str) or not name:
            raise UsageError("run.scope() takes a name and a function", why=f"got {name!r}")
        key = f"_{name}"
        codec = _result_codec(function)
        if key in self.moment.results:
            self.answered += 1
            return codec.decode(blobs.fetch(self.store, self.moment.results[key]))
        self._check_may_begin(name)
        return await self._run_scope(key, name, [], function, args, lambda: ([], None), codec)

    def _check_may_begin(self, title: str) -> None:
        self.check_going_on()
        check_outside_steps(f"the scope {title!r} would begin")
        if self.scope is not None:
            raise AgentError(
                f"the scope {title!r} would begin inside {self.scope.title!r}",
                why="one scope at a time commits",
                remedy="call a step instead, or await one scope after the other",
            )
        self.check_state_unchanged(f"when {title!r} began")

    async def _run_scope(
        self, key: str, title: str, splices: Sequence[Splice], function: Callable[..., Any], args: tuple[Any, ...],
        finish: Callable[[], tuple[list[Splice], str | None]], codec: Codec = ANY,
    ) -> Any:  # fmt: skip
        recorded = self.moment.scopes.get(key)
        if recorded is None or splices:
            self.journal.add(ScopeBegun(scope=key, title=title, plan=tuple(splices)))
            self.projector.want(self.workspace.files.todo)
            self.projector.want(self.workspace.files.state)
        scope = self.scope = ScopeRun(self, key, title, recorded or Scope(title=title))
        token = current_scope.set(scope)
        try:
            result = function(*args)
            if inspect.isawaitable(result):
                result = await result
            await scope.quiet()
            return await self._commit(scope, result, finish, codec)
        except BaseException:
            try:
                await scope.quiet()
            finally:  # cancelled once more, it is rolled back all the same
                self.journal.flush()
                self.rollback()
                self.plan = self.moment.plan.copy()
            raise
        finally:
            scope.ended = True
            self.scope = None
            self._splices = []
            current_scope.reset(token)

    async def _commit(
        self, scope: ScopeRun, result: Any, finish: Callable[[], tuple[list[Splice], str | None]],
        codec: Codec,
    ) -> Any:  # fmt: skip
        """The end of a scope, as one record. Returns its result as an answer from the record would be."""
        self.check_going_on()
        self.ask_about_unreached(scope)
        data = encode(result, f"the result of {scope.title!r}")
        answer = codec.decode(data)  # refused here, not at every start after it has committed
        state = encode(self.state, "run.state")
        change = [] if state == self._committed else patch.diff(self.moment.data, msgspec.json.decode(state))
        splices, cancelled = finish()
        kept = blobs.keep(self.store, data, self.journal.epoch) if data != b"null" else Kept()
        for message in scope.messages:
            self.journal.add(message)
        self.journal.add(
            ScopeCommitted(
                scope=scope.key, patch=change, plan=(*self._splices, *splices), result=kept.result, blob=kept.blob,
                outputs=scope.outputs, cancelled=cancelled,
            )
        )  # fmt: skip
        self.journal.flush()
        self._committed = state
        files = self.workspace.files
        for document in (files.state, files.steps):
            self.projector.mark(document)
        if splices or self._splices:
            self.projector.mark(files.todo)
        if scope.messages:
            self.projector.mark(files.messages)
        self.workspace.checkpoint_if_due()
        return answer

    def ask_about_unreached(self, scope: ScopeRun) -> None:
        """Nothing commits over an effect of which it is not known how it ended."""
        recorded = self.moment.scopes.get(scope.key)
        if recorded is None or not recorded.started:
            return
        self.journal.flush()  # what is known of them may only be waiting for company
        for key, started in recorded.started.items():
            identity = {name: getattr(started, name) for name in OfCall.__struct_fields__}
            self.ask(identity, "unknown_outcome" if scope.is_claimed(key) else "unreached")
        self.check_going_on()


def _is_most_of(splices: list[Splice], plan: Plan) -> bool:
    """Then the parse goes into the record too: it spares every later opening one, and stays in proportion."""
    return 2 * sum(len(splice.text) for splice in splices) >= len(plan.text)


def _result_codec(function: Callable[..., Any]) -> Codec:
    """A scope's result comes back as the type its function is annotated with, as a step's does."""
    import typing

    try:
        kind = typing.get_type_hints(function).get("return", Any)
    except (NameError, TypeError):
        return ANY
    return Codec(kind, f"the result of {getattr(function, '__name__', 'the scope')}")
