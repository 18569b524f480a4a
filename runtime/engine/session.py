"""One running agent of the tree: its live state and plan, and the scopes that commit them.

The moment (workspace/state/run_state.py) is durable. `state` and `plan` here belong to the agent, and also contain the
uncommitted changes of the current scope. When that scope fails, they are made again from the moment.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import partial as bind
from typing import Any, Protocol

from msgspec import Raw, Struct
from msgspec.structs import replace

from ...workspace.base import AgentError, SatchelError, UsageError
from ...workspace.journal.records import Migrated, Patch, PauseRequested, PlanChanged, ScopeBegun, ScopeCommitted
from ...workspace.people.inbox import archive, inbox
from ...workspace.state import CANCEL, ROOT, blobs, scope_of_task
from ...workspace.todo import Plan, Splice, Task
from ...workspace.views import folder_of
from ..agent import Agent, describe, of_storage, said
from ..steps import ANY, Codec, Retry, check_depth, current_scope, result_codec
from . import failing, publishing, unresolved
from .context import AgentContext, Context
from .live_state import LiveState, as_object
from .migrating import bring_up
from .open_scope import check_outside_steps, current_call
from .results import returned
from .scope import ScopeRun
from .stopping import Suspended

FAILURES = 3
"""After so many failures of an item the run is paused as stuck."""

_WAITS = (0.5, 2.0)
"""Seconds before a failed item is tried again, by the number of its failures."""


class ItemFace(Protocol):
    """What this module needs of an item (run/plan.py)."""

    skipped: str | None


class Body(Struct, frozen=True):
    """What a scope runs, and how its commit ends it."""

    key: str
    title: str
    function: Callable[[], Any]
    finish: Callable[[], tuple[list[Splice], str | None]]  # changes the plan, and says why the item was cancelled
    codec: Codec = ANY  # of the result
    tasks: Sequence[str] = ()  # of the inbox, that the commit ends


class Session(AgentContext):
    """The context of one agent, with its state and plan, and the current scope."""

    def __init__(
        self, context: Context, agent: Agent, path: str = "", caller: ScopeRun | None = None, *, root: str = ROOT
    ):
        super().__init__(context, path, caller, pipelined=agent.durability == "pipelined")
        self.store, self.journal, self.projector = context.store, context.journal, context.projector
        self.agent = agent
        self.scope: ScopeRun | None = None  # the running one, besides the root
        self.root: ScopeRun  # of the calls outside it
        self._root = root
        self.live = LiveState(Codec(agent.state, f"the state of {path}" if path else "the state"))
        self.plan = self.recorded.plan.copy()
        self._splices: list[Splice] = []  # what the current scope has changed in the plan
        self._planned = ""  # what it has written as the plan, as a hash

    async def begin(self) -> None:
        """Take state and plan from the moment. For a new agent, record the first state; for data of an earlier version,
        migrate it."""
        if self.recorded.has_data and bring_up(self, self.agent.migrations, self.live.codec):
            self.publish_schemas()
        if not self.recorded.has_data:
            data = check_depth(as_object(self.agent.initial_state(), "the state"), "the state")
            whole: Patch = [{"op": "add", "path": "", "value": Raw(data)}]
            if self.agent.version != self.recorded.data_version:  # first: data of that version must not be migrated
                self.journal.add(Migrated(agent=self.path, to=self.agent.version))
            self.journal.add(ScopeCommitted(agent=self.path, scope=ROOT, patch=whole))
            await self.root.durable()
            if not self.path:  # a checkpoint to return to, before the first stop
                self.context.workspace.checkpoint("start")
        self.rollback()

    def publish_schemas(self) -> None:
        """Write the schemas for editors."""
        publishing.publish_schemas(self.store, self.agent, self.recorded, self.live.codec)

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the agent's function. When this returns or raises, nothing of the agent runs any more."""
        return await failing.until_fresh(lambda: self._enter(args, kwargs))

    async def _enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.run = self.context.make_run(self)
        if self._root not in self.recorded.scopes:
            self.journal.add(ScopeBegun(agent=self.path, scope=self._root, title=self._root[1:]))
            self.journal.flush()
        self.root = ScopeRun(self, self._root, "", self.recorded.scopes[self._root])
        tokens = current_scope.set(self.root), current_call.set(None)
        try:
            await self.begin()
            self.check_going_on()
            result = await self.agent.function(self.run, *args, **kwargs)
            await self.root.work.quiet()
            self.check_going_on()
            self.root.work.made.check("the agent", self.store.url)
            unresolved.ask_about_all(self, self.root)
            self.live.check_unchanged("when the agent returned")
            return result
        except BaseException as error:
            failed = failing.record_of(self.root, error)
            is_replayed = failing.is_replayed(failed, error)
            self.is_closing = not is_replayed
            self.root.abandon()
            await self.root.work.quiet()
            if failed is not None and failed.calls:
                self.journal.add(replace(failed, uncounted=True))
                self.journal.flush()
            if is_replayed:
                raise failing.Replayed from error
            raise
        finally:
            self.root.ended = True
            current_scope.reset(tokens[0])
            current_call.reset(tokens[1])

    @property
    def state(self) -> Any:
        """The user's own object. AgentError for another task of the agent while a scope runs: its change would be
        committed or undone with that scope."""
        if self.scope is not None and current_scope.get() is self.root:
            raise AgentError(
                f"run.state was used while the scope ran: {self.scope.title!r}",
                why="a change there would be committed or undone with that scope",
                remedy="use it in that scope's function, or await the task before the scope begins",
            )
        return self.live.value

    def rollback(self) -> None:
        """The state as of the last commit, in a new object of the user's type."""
        self.live.restore(self.recorded.data, f"{self.recorded.folder}state.json")

    def refresh(self) -> None:
        self.rollback()
        self.plan = self.recorded.plan.copy()

    def open_scope(self, what: str) -> ScopeRun:
        """The current scope. AgentError if the caller is not in it."""
        check_outside_steps(f"{what} was called")
        scope = self.scope
        is_here = current_scope.get() is scope
        if scope is not None and is_here:
            return scope
        raise AgentError(
            f"{what} was called outside a scope",
            why="what is not part of a commit is done again at every start",
            remedy="call it in an item's function, or in one called with run.scope(...)",
        )

    # The plan

    @property
    def planned(self) -> str:
        """The hash of the plan that the agent has written; empty without one."""
        return self._planned or self.recorded.planned

    async def replan(self, edit: Callable[[Plan], list[Splice]], why: str, planned: str = "") -> None:
        """Change the plan: at once outside a scope, with its commit inside one. `planned`: see there."""
        self.check_going_on()
        check_outside_steps("the plan was changed")
        if current_scope.get() is not (self.scope or self.root):
            other = f"the scope {self.scope.title!r}" if self.scope else "its agent"
            raise AgentError(
                f"the plan was changed while another scope ran: {other}", why="one scope at a time commits",
                remedy="change it in that scope's function, or when it has ended",
            )  # fmt: skip
        splices = edit(self.plan)
        splices += self.plan.identify(self.recorded.highest_id)
        if not splices:
            return
        if self.scope is not None:
            self._splices += splices
            self._planned = planned or self._planned
            return
        outline = self.plan.outline_after(splices)
        changed = PlanChanged(agent=self.path, plan=(*splices,), outline=outline, by="agent", why=why, planned=planned)
        if outline:
            self.plan = Plan()  # for a large one the record is enough, until it is applied
        try:
            self.journal.add(changed)
        finally:
            self.plan = self.recorded.plan.copy() if outline else self.plan
        self.journal.flush()
        self.projector.mark(self.files.todo)

    async def run_item(
        self, task: Task, make: Callable[[str], ItemFace], work: Callable[..., Any], *, follows: bool
    ) -> bool:  # fmt: skip
        """Run one item; `make(id)` is the item for the agent. Its function is a scope, and the commit ticks it. A
        failed item is tried again, and finished steps return their results; after three failures the run is paused.
        Returns whether it has committed. `follows`: no code of the agent has run since one before it has."""
        text, watch = task.text, self.context.watch
        while True:
            self._check_may_begin(text, follows=follows)
            splices = self.plan.begin(task, self.recorded.highest_id)
            key = self.plan.now(task).id
            assert key is not None, "a begun item has an id"
            if watch:
                watch.item_begun(self.path, text, *self.plan.progress)
            try:
                await self._run_item(key, text, splices, make(key), work)
                follows = True
                break
            except Exception as error:
                if not Retry().is_worth_it(error):
                    raise  # a programming mistake, so the next attempt would fail too
                await self.wait_to_try_again(key, error)
                found, follows = self.plan.task(key), False
                if found is None or found.is_finished:
                    break  # a person has removed it meanwhile
                task = found
        if watch:
            watch.item_ended(self.path, text, *self.plan.progress)
        return follows

    async def run_task(
        self, id: str, title: str, work: Callable[..., Any], task: Any, dropped: str | None = None
    ) -> None:  # fmt: skip
        """Try once to do a task of the inbox. The commit ends the task, and says why it was `dropped` if it was."""
        self._check_may_begin(title)
        key = scope_of_task(id)
        await self._run_scope(Body(key, title, lambda: work(self.run, task), lambda: ([], dropped), tasks=(id,)))

    async def wait_to_try_again(self, key: str, error: Exception, way_out: str = "") -> None:
        """Called after an item or a task has failed. After too many failures the run is paused, and the reason ends
        with a `way_out`."""
        failures = self.recorded.scopes[key].failures
        if failures >= FAILURES and of_storage(error) is None:
            title = self.recorded.scopes[key].title
            reason = f"stuck: {title!r} has failed {failures} times, the last time with {said(error)}{way_out}"
            self.context.stopping.pause(PauseRequested(reason=reason, by="satchel"), describe(error, self.store.url))
            raise Suspended from error
        await asyncio.sleep(_WAITS[min(failures, len(_WAITS)) - 1])

    async def _run_item(
        self, key: str, text: str, splices: Sequence[Splice], item: ItemFace, work: Callable[..., Any]
    ) -> None:
        def finish() -> tuple[list[Splice], str | None]:
            found = self.plan.task(key)
            if found is None or found.mark == "cancelled":
                return [], item.skipped
            edit = self.plan.tick if item.skipped is None else self.plan.cancel
            return edit(found), item.skipped

        await self._run_scope(Body(key, text, lambda: work(self.run, item), finish), splices)

    # Scopes

    async def run_scope(self, name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """A named scope. Returns its recorded result once it has committed."""
        if not isinstance(name, str) or not name:
            raise UsageError("run.scope() takes a name and a function", why=f"got {name!r}")
        key = f"_{name}"
        if key == CANCEL:
            raise UsageError(f"run.scope() got the name {name!r}", why="the calls of on_cancel use it")
        codec = result_codec(function)
        if key in self.recorded.results:
            self.context.tally.answered += 1
            return codec.decode(blobs.fetch(self.store, self.recorded.results[key]))
        self._check_may_begin(name)
        answer = await self._run_scope(Body(key, name, lambda: function(*args), lambda: ([], None), codec))
        self.live.handed_over()
        return answer

    def _check_may_begin(self, title: str, *, follows: bool = False) -> None:
        self.context.limits.look()
        self.check_going_on()
        check_outside_steps(f"the scope {title!r} would begin")
        if self.scope is not None:
            raise AgentError(
                f"the scope {title!r} would begin inside {self.scope.title!r}",
                why="one scope at a time commits",
                remedy="call a step instead, or await one scope after the other",
            )
        if current_scope.get() is not self.root:
            raise AgentError(
                f"the scope {title!r} was called with another agent's run", why="its commit would belong to that agent",
                remedy="use the `run` that this agent got",
            )  # fmt: skip
        if not follows:
            self.live.check_unchanged(f"when {title!r} began")

    async def _run_scope(self, body: Body, splices: Sequence[Splice] = ()) -> Any:
        """`splices` change the plan when the scope begins."""
        if body.key not in self.recorded.scopes or splices:
            self.journal.add(ScopeBegun(agent=self.path, scope=body.key, title=body.title, plan=tuple(splices)))
            self.projector.want(self.files.todo)
            self.projector.want(self.files.state)
            self.context.pace.flush_later()
        return await failing.until_fresh(lambda: self._try_scope(body))

    async def _try_scope(self, body: Body) -> Any:
        scope = self.scope = ScopeRun(self, body.key, body.title, self.recorded.scope(body.key, body.title))
        scope.tasks += body.tasks
        token = current_scope.set(scope)
        try:
            result = body.function()
            if inspect.isawaitable(result):
                result = await result
            await scope.work.quiet()
            scope.work.made.check(repr(body.title), self.store.url)
            answer = self._commit(scope, body, result)
        except BaseException as error:
            failed = failing.record_of(scope, error)
            scope.abandon()
            is_failure = isinstance(error, Exception) and of_storage(error) is None
            was_stopped = scope.was_stopped  # it has failed for that
            try:
                await scope.work.quiet()
            finally:  # even if it is cancelled again, it is rolled back
                if failed is not None and not was_stopped and body.key in self.recorded.scopes:
                    self.journal.add(failed)
                    self.journal.flush()  # failures are counted, however many processes they end
                self.rollback()
                self.plan = self.recorded.plan.copy()
            if is_failure and was_stopped:
                raise self.stopped() from error
            if failing.is_replayed(failed, error):
                raise failing.Replayed from error
            raise
        else:
            self._follow_commit(scope)
            return answer
        finally:
            scope.ended = True
            self.scope = None
            self._splices, self._planned = [], ""
            current_scope.reset(token)
            self.context.at_boundary()

    def _commit(self, scope: ScopeRun, body: Body, result: Any) -> Any:
        """The end of a scope, as one record. Returns its result in the form of a recorded one. When this returns, the
        scope has committed, whatever happens next; if it raises, nothing has."""
        self.check_may_commit()
        unresolved.ask_about(self, scope)
        what = f"the result of {scope.title!r}"
        kept, answer = returned(self.store, self.journal.epoch, result, what, body.codec)
        change = self.live.change()
        splices, cancelled = body.finish()
        left = [] if self.path else inbox.released(self.context.moment, scope.key, scope.tasks)
        for message in scope.messages:
            self.journal.add(message)
        for task in left:
            self.journal.add(task)
        self.journal.add(
            ScopeCommitted(
                agent=self.path, scope=scope.key, patch=change.patch, plan=(*self._splices, *splices),
                result=kept.result, blob=kept.blob, outputs=scope.outputs, cancelled=cancelled, planned=self._planned,
            )
        )  # fmt: skip
        for done in inbox.done_with(scope.key, [id for id in scope.tasks if id in self.context.moment.tasks]):
            self.journal.add(done)
        self.live.committed(change)
        self._splices += splices
        return answer

    def _follow_commit(self, scope: ScopeRun) -> None:
        """The work after a commit. An error here ends the run, and is no failure of the scope."""
        workspace, files = self.context.workspace, self.files
        try:
            self.context.pace.flush_later()
            if scope.tasks:
                self.journal.flush()
                archive.put_away(self.store, self.context.moment)
            also = [files.todo] if self._splices else []
            self.projector.mark(files.state, files.steps, *also, *([files.messages] if scope.messages else []))
            name = bind(folder_of, scope.key, scope.title)
            if self.plan.is_milestone(scope.key):
                workspace.checkpoint("milestone", name())
            else:
                workspace.checkpoint_if_due(item=name)
        except SatchelError as error:
            self.context.stopping.failed = error
            raise Suspended from error
