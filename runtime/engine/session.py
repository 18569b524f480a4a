"""One running agent of the tree: its live state and plan, and the scopes that commit them.

The moment (workspace/state/run_state.py) is durable. `state` and `plan` here belong to the agent, and also contain the
uncommitted changes of the current scope. When that scope fails, they are made again from the moment. In parallel
several scopes run at once, each with copies of its own (live/data.py).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial as bind
from typing import Any

from msgspec import Struct

from ...workspace.base import AgentError, SatchelError, UsageError, arguments
from ...workspace.inbound import archive, inbox
from ...workspace.journal import Key, PauseRequested, PlanChanged, ScopeBegun, ScopeCommitted, Uncalled, blobs
from ...workspace.plan import Plan, Splice, Task
from ...workspace.state import CANCEL, ROOT, STUCK_AFTER, is_of_item, is_of_task
from ...workspace.views import folder_of
from ..agent import ANY, Agent, Codec, current_scope, describe, of_storage, result_codec, said
from ..live import CommittedChange, Contradiction, LiveState, Make, PlanEdit, ScopeCopy, Suspended
from . import context
from .context import AgentContext, Context
from .open_scope import Claims, check_outside_steps
from .parallel import Dismissed, ParallelScopes
from .scope import (
    RaisedFromRecord,
    ScopeRun,
    ask_about,
    check_not_stuck,
    is_entered_again,
    record_of,
    returned,
    tell_uncalled,
    until_fresh,
)

_WAITS = (0.5, 2.0)
"""Seconds before a failed item is tried again, by the number of its failures."""


class ScopeBody(Struct, frozen=True):
    """What one attempt at a scope runs, and how its commit ends it."""

    key: str
    title: str
    function: Callable[[], Any]
    finish: Callable[[], tuple[list[Splice], str | None]]  # changes the plan, and says why the item was cancelled
    codec: Codec = ANY  # of the result
    tasks: Sequence[str] = ()  # of the inbox, that the commit ends
    splices: Sequence[Splice] = ()  # change the plan when the scope begins


class Session(AgentContext):
    """The context of one agent, with its state and plan, and the current scope."""

    def __init__(
        self, context: Context, agent: Agent, path: str = "", caller: ScopeRun | None = None, *, root: str = ROOT
    ):
        keeps_unknown = agent.unknown == "keep"
        super().__init__(context, path, caller, pipelined=agent.durability == "pipelined", keeps_unknown=keeps_unknown)
        self.store, self.journal, self.projector = context.store, context.journal, context.projector
        self.agent = agent
        self.scope: ScopeRun | None = None  # the running one, besides the root and those in parallel
        self.parallel: ParallelScopes | None = None
        self._named: set[str] = set()  # the named scopes that have begun and not ended
        self._alone: ExitStack | None = None  # left at the end of a named scope that runs without copies
        self._ended: asyncio.Event  # then set
        self.root: ScopeRun  # of the calls outside it
        self.root_key = root
        codec = Codec(agent.state, f"the state of {path}" if path else "the state")
        self.live = LiveState(codec, keeps_unknown=keeps_unknown)
        self._plan = self.recorded.plan.copy()
        self._claims: dict[str, Claims] = {}  # of the last attempt at each scope, until it commits

    def publish_schemas(self) -> None:
        """Write the schemas for editors."""
        context.publish_schemas(self.context.workspace, self.agent, self.recorded)

    @property
    def here(self) -> ScopeRun | None:
        """The running scope of this agent, besides the root. In parallel the caller's own."""
        scope = current_scope.get()
        if isinstance(scope, ScopeRun) and scope.apart is not None and scope.agent is self:
            return scope
        return self.scope

    @property
    def state(self) -> LiveState:
        """The state for the caller. AgentError for another task of the agent while a scope runs: its change would be
        committed or undone with that scope."""
        here = self.here
        if (here is not None or self.parallel is not None) and current_scope.get() is self.root:
            raise AgentError(
                f"run.state was used while {_running(here)}",
                why="a change there would be committed or undone with that scope",
                remedy="use it in that scope's function, or await the task before the scope begins",
            )
        if here is None or here.apart is None:
            return self.live
        if here.ended:
            raise AgentError(
                f"run.state was used after its scope had ended: {here.title!r}",
                why="a change there would be lost",
                remedy="await every task before the scope's function returns",
            )
        return here.apart.live

    @property
    def plan(self) -> Plan:
        """The plan for the caller, with the changes of its scope."""
        here = self.here
        own = here.apart.plan if here is not None and here.apart is not None else None
        return self._plan if own is None else own

    def rollback(self) -> None:
        """The state as of the last commit, in a new object of the user's type."""
        self.live.restore(self.recorded.data, self._state_file)

    @property
    def _state_file(self) -> str:
        return f"{self.recorded.folder}state.json"

    def refresh(self) -> None:
        self.rollback()
        self._plan = self.recorded.plan.copy()
        if self.parallel is not None:
            self.parallel.look_again()

    def open_scope(self, what: str) -> ScopeRun:
        """The current scope. AgentError if the caller is not in it."""
        check_outside_steps(f"{what} was called")
        scope = self.here
        if scope is not None and current_scope.get() is scope and not (scope.apart and scope.ended):
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
        here = self.here
        return (here is not None and here.planned) or self.recorded.planned

    @property
    def highest_id(self) -> int:
        """The highest number that an item has ever got, also in the copy of a scope that has not committed."""
        return max(self.recorded.highest_id, 0 if self.parallel is None else self.parallel.highest_id)

    def _free_id(self, own: Plan) -> str:
        """An id for an item in a scope's copy of the plan. No other item gets it."""
        assert self.parallel is not None
        id = own.free_id(int(self._plan.free_id(self.highest_id)) - 1)
        self.parallel.highest_id = int(id)
        return id

    async def replan(
        self, why: str, make: Make, *about: Task, adds: int = 0, ends: bool = False, planned: str = ""
    ) -> None:
        """Change the plan: at once outside a scope, with its commit inside one. See `PlanEdit`."""
        edit = PlanEdit(why, make, about, adds, ends, planned)
        self.check_going_on()
        check_outside_steps("the plan was changed")
        here = self.here
        if current_scope.get() is not (here or self.root) or (here is None and self.parallel is not None):
            other = f"another scope ran: the scope {here.title!r}" if here else _running(None)
            raise AgentError(
                f"the plan was changed while {other}",
                why="it changes with the commit of a scope",
                remedy="change it in that scope's function, or when it has ended",
            )
        if here is not None and here.apart is not None:
            if here.apart.replan(self._plan, edit, self._free_id):
                here.planned = edit.planned or here.planned
            return
        splices = edit.make(self._plan, (), *edit.about)
        splices += self._plan.identify(self.recorded.highest_id)
        if not splices:
            return
        if here is not None:
            here.splices += splices
            here.planned = edit.planned or here.planned
            return
        outline = self._plan.outline_after(splices)
        changed = PlanChanged(
            agent=self.path, plan=(*splices,), outline=outline, by="agent", why=edit.why, planned=edit.planned
        )
        if outline:
            self._plan = Plan()  # for a large one the record is enough, until it is applied
        try:
            self.journal.add(changed)
        finally:
            self._plan = self.recorded.plan.copy() if outline else self._plan
        await self.root.durable()
        self.projector.mark(self.files.todo)
        self.end_dropped()

    # Scopes

    async def run_scope(self, name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """A named scope. Returns its recorded result once it has committed."""
        if not isinstance(name, str) or not name:
            raise UsageError("run.scope() takes a name and a function", why=f"got {name!r}")
        arguments.text("the name of a scope", name)
        key = f"_{name}"
        if key == CANCEL:
            raise UsageError(f"run.scope() got the name {name!r}", why="the calls of on_cancel use it")
        if is_of_task(key):
            raise UsageError(f"run.scope() got the name {name!r}", why="such names are those of tasks in the inbox")
        codec = result_codec(function)
        if key in self.recorded.results:
            self.context.tally.answered += 1
            data = blobs.fetch(self.store, self.recorded.results[key])
            return codec.recorded(data, keeps_unknown=self.keeps_unknown)
        what = f"the scope {name!r} would begin"
        check_outside_steps(what)
        while self._alone is not None and current_scope.get() is self.root:
            if self.scope is not None and self.scope.splices:  # its tasks are known in its plan only
                await self._ended.wait()
            else:
                self._split(self._alone)
        if self.parallel is None or not self.parallel.named:
            self.check_between_scopes(what)
        self.check_may_begin(name, beside_named=True)
        if key in self._named:
            raise AgentError(f"{what} while it runs", remedy="await the first call, or give this scope another name")
        answer = await self._run_named(ScopeBody(key, name, lambda: function(*args), lambda: ([], None), codec))
        self.live.handed_over()
        return answer

    async def _run_named(self, body: ScopeBody) -> Any:
        """The agent's own task runs a scope without copies until another task begins one, too. That waits for its end
        if it has changed the plan."""
        root, task = self.root, asyncio.current_task()
        assert task is not None
        cancelling = task.cancelling()
        with ExitStack() as end:
            self._named.add(body.key)
            end.callback(self._named.discard, body.key)
            if self.parallel is None and task is root.task:
                self._alone, self._ended = end, asyncio.Event()
                end.callback(setattr, self, "_alone", None)
                end.callback(self._ended.set)
            else:
                end.enter_context(self.in_parallel(is_named=True))
            while not root.abandoned:
                try:
                    return await self.run_body(body.key, lambda: body)
                except Dismissed as dismissed:
                    await _uncancel(task, dismissed.cancelled, cancelling)
                if self.parallel is not None:
                    await self.parallel.until_unheld(body.key)
            raise self.stopped()

    @contextmanager
    def in_parallel(self, *, is_named: bool = False) -> Iterator[ParallelScopes]:
        """While the body runs, several scopes may run. The agent's own `run.state` is a new object afterwards."""
        if self.parallel is None:
            self.live.check_unchanged("when several scopes began")
            self.live.handed_over()
            self.parallel = ParallelScopes(self.context.stopping.drain)
            self.context.agents.parallel += 1
        parallel = self.parallel
        parallel.named += is_named
        try:
            yield parallel
            if parallel.named <= is_named:
                self.live.check_unchanged("when several scopes had ended")
        finally:
            parallel.named -= is_named
            if not parallel.named:
                self.parallel = None
                self.context.agents.parallel -= 1
                parallel.over.set()
                self.rollback()
                self.live.handed_over()

    def _split(self, end: ExitStack) -> None:
        """A task begins a scope while another scope runs alone: from now on that one has copies of its own, too."""
        self._alone = None
        scope, self.scope, live = self.scope, None, self.live
        if scope is not None:
            self.live = live.fresh(self.recorded.data, self._state_file)
            scope.apart = ScopeCopy(self.live, self.recorded.data, self._state_file)
            scope.apart.take(live)
        parallel = end.enter_context(self.in_parallel(is_named=True))
        if scope is not None:
            parallel.open.add(scope)

    async def quiet(self) -> None:
        """Return when none of the agent's own calls runs, and no named scope that another of its tasks has begun."""
        await self.root.work.quiet()
        while self.parallel is not None and self.parallel.named and not self.context.stopping.drain.forced:
            await self.parallel.over.wait()

    async def wait_to_try_again(self, key: str, error: Exception, way_out: str = "") -> None:
        """Called after an item or a task has failed. After too many failures the run is paused, and the reason ends
        with a `way_out`."""
        scope = self.recorded.scopes.get(key)
        if scope is None:
            return  # a person has dropped it meanwhile
        if self.context.rehearsal is not None:
            self.context.rehearsal.failed(self.context.stopping, scope.title, error)
        failures = scope.failures
        if failures >= STUCK_AFTER and of_storage(error) is None:
            title = scope.title
            reason = f"stuck: {title!r} has failed {failures} times, the last time with {said(error)}{way_out}"
            self.context.stopping.pause(PauseRequested(reason=reason, by="satchel"), describe(error, self.store.url))
            raise Suspended from error
        await asyncio.sleep(_WAITS[min(failures, len(_WAITS)) - 1])

    def check_may_begin(self, title: str, *, follows: bool = False, beside_named: bool = False) -> None:
        """`follows`: no code of the agent has run since an earlier check. `beside_named`: it may run next to named
        scopes."""
        self.context.limits.look()
        self.check_going_on()
        check_outside_steps(f"the scope {title!r} would begin")
        self._check_not_inside(f"the scope {title!r} would begin")
        if self.parallel is not None and self.parallel.named and not beside_named:
            self.check_between_scopes(f"the scope {title!r} would begin")
        if current_scope.get() is not self.root:
            raise AgentError(
                f"the scope {title!r} was called with another agent's run",
                why="its commit would belong to that agent",
                remedy="use the `run` that this agent got",
            )
        if not follows:
            self.live.check_unchanged(f"when {title!r} began")

    def _check_not_inside(self, what: str) -> None:
        if (here := self.here) is not None:
            raise AgentError(
                f"{what} inside {here.title!r}",
                why="one scope at a time commits",
                remedy="call a step instead, or await one scope after the other",
            )

    def check_between_scopes(self, what: str) -> None:
        """AgentError in a scope, and while several scopes may run."""
        check_outside_steps(what)
        self._check_not_inside(what)
        if self.parallel is not None:
            raise AgentError(
                f"{what} while {_running(None)}",
                why="`each`, or one of the named scopes, is not over",
                remedy="await one after the other, or give more to one `each`",
            )

    async def run_body(self, key: str, make: Callable[[], ScopeBody | None]) -> Any:
        """Run a scope until it commits, and return its result. `make` is called for each attempt. It returns None if
        there is nothing left to do; then so does this."""

        async def enter() -> Any:
            self.check_going_on()
            if (body := make()) is None:
                return None
            await self.rehearse_begin(key, body.title)
            self.record_begin(key, body.title, body.splices)
            check_not_stuck(self.context, self.recorded.scopes[key])
            return await self._try_scope(body)

        async def attempt() -> Any:
            return await until_fresh(enter)

        if self.parallel is None:
            with suppress(Contradiction):  # others have begun, and have changed the same
                return await attempt()
        assert self.parallel is not None
        return await self.parallel.until_merged(key, attempt)

    async def rehearse_begin(self, key: str, title: str) -> None:
        """A rehearsal begins no new scope."""
        rehearsal = self.context.rehearsal
        if rehearsal is not None and key not in self.recorded.scopes:
            await rehearsal.at_scope(self.context.stopping, title)

    def record_begin(self, key: str, title: str, splices: Sequence[Splice]) -> None:
        only = self.context.only
        if only is not None and not self.path and not only.is_it(key, title):
            raise only.missed(self.context.stopping, f"it began {title!r} before it")
        if key not in self.recorded.scopes or splices:
            self.journal.add(ScopeBegun(agent=self.path, scope=key, title=title, plan=tuple(splices)))
            self.projector.want(self.files.todo)
            self.projector.want(self.files.state)
            if self.context.moment.root.scopes[ROOT].crashes:  # so that the reason of a run that is stuck can name it
                self.journal.flush()
            self.context.pace.flush_later()

    async def _try_scope(self, body: ScopeBody) -> Any:
        scope = ScopeRun(self, body.key, body.title, self.recorded.scope(body.key, body.title))
        scope.tasks += body.tasks
        self._claims[body.key] = scope.claims
        if self.parallel is None:
            self.scope = scope
        else:
            self.parallel.open.add(scope)
        token = current_scope.set(scope)
        try:
            if self.parallel is not None:
                scope.apart = ScopeCopy(self.live, self.recorded.data, self._state_file)
            elif self.live.value is None:  # it could not be read after the last failure
                self.rollback()
            result = body.function()
            if inspect.isawaitable(result):
                result = await result
            await scope.work.quiet()
            scope.work.made.check(repr(body.title), self.store.url)
            answer = self._commit(scope, body, result)
        except Contradiction:
            self._forget_plan(scope)
            raise
        except BaseException as error:
            failed = None if scope.is_dismissed else record_of(scope, error)
            scope.abandon()
            is_failure = isinstance(error, Exception) and of_storage(error) is None
            was_stopped = scope.was_stopped  # it has failed for that
            try:
                await scope.work.quiet()
            finally:  # even if it is cancelled again, it is rolled back
                if failed is not None and not was_stopped and body.key in self.recorded.scopes:
                    self.journal.add(failed)
                    self.journal.flush()  # failures are counted, however many processes they end
                self._forget_plan(scope)
                if self.parallel is None:
                    self.rollback()
            if scope.is_dismissed and (is_failure or isinstance(error, asyncio.CancelledError)):
                self.check_going_on()
                raise Dismissed(scope.cancelled) from error
            if is_failure and was_stopped:
                raise self.stopped() from error
            if is_entered_again(failed, error):
                raise RaisedFromRecord from error
            raise
        else:
            self._follow_commit(scope)
            return answer
        finally:
            scope.ended = True
            self.scope = None
            if self.parallel is not None:
                self.parallel.open.discard(scope)
            current_scope.reset(token)
            self.context.at_boundary()

    def _forget_plan(self, scope: ScopeRun) -> None:
        """The scope has not committed what it has changed in the plan."""
        if self.parallel is None or scope.splices:
            self._plan = self.recorded.plan.copy()

    def _commit(self, scope: ScopeRun, body: ScopeBody, result: Any) -> Any:
        """The end of a scope, as one record. Returns its result in the form of a recorded one. When this returns, the
        scope has committed, whatever happens next; if it raises, nothing has."""
        self.check_may_commit()
        scope.check_not_dismissed()
        ask_about(self, scope)
        uncalled = self._uncalled({scope.key: scope.claims})
        what = f"the result of {scope.title!r}"
        kept, answer = returned(self.context.workspace, result, what, body.codec)
        change = self._change(scope)
        splices, cancelled = body.finish()
        scope.splices += splices
        left = [] if self.path else inbox.released(self.context.moment, scope.key, scope.tasks)
        for message in scope.messages:
            self.journal.add(message)
        for task in left:
            self.journal.add(task)
        self.journal.add(
            ScopeCommitted(
                agent=self.path,
                scope=scope.key,
                patch=change.patch,
                plan=tuple(scope.splices),
                result=kept.result,
                blob=kept.blob,
                outputs=scope.outputs,
                cancelled=cancelled,
                planned=scope.planned,
                uncalled=uncalled.get(scope.key, ()),
            )
        )
        del self._claims[scope.key]
        self._plan.take_own_work(self.recorded.plan.own_work)  # if it waits for sub-items, it has none any more
        for done in inbox.done_with(scope.key, [id for id in scope.tasks if id in self.context.moment.tasks]):
            self.journal.add(done)
        if scope.apart is None:
            self.live.committed(change)
        else:
            self.live.take_leave(scope.apart.live, change)
        return answer

    def _change(self, scope: ScopeRun) -> CommittedChange:
        """The change of the data. What a scope in a lane has changed in the plan is done again. Contradiction if that,
        or the data, has changed since in the same places."""
        if scope.apart is None:
            return self.live.change()
        self.live.check_unchanged(f"when {scope.title!r} ended")
        change = scope.apart.change(self.recorded.data)
        plan = self._plan.copy()
        if splices := scope.apart.replan_again(plan):
            scope.splices += splices + plan.identify(self.highest_id)
            self._plan = plan
        return change

    def _follow_commit(self, scope: ScopeRun) -> None:
        """The work after a commit. An error here ends the run, and is no failure of the scope."""
        workspace, files = self.context.workspace, self.files
        try:
            self.context.pace.flush_later()
            if scope.tasks:
                self.journal.flush()
                archive.put_away(self.store, self.context.moment)
            if scope.splices:
                self._tell_dropped(scope)
            also = [files.todo] if scope.splices else []
            self.projector.mark(files.state, files.steps, *also, *([files.messages] if scope.messages else []))
            name = bind(folder_of, scope.key, scope.title)
            if self.plan.is_milestone(scope.key):
                workspace.checkpoint("milestone", name())
            else:
                workspace.checkpoint_if_due(item=name)
            only = self.context.only
            if only is not None and not self.path and only.is_it(scope.key, scope.title):
                only.done(self.context.stopping)
        except SatchelError as error:
            self.context.stopping.failed = error
            raise Suspended from error

    def _tell_dropped(self, scope: ScopeRun) -> None:
        """Let items that run in parallel come to an end, if this commit has dropped them."""
        if self.parallel is not None:
            self.parallel.dismiss({key for key in self.parallel.keys if key != scope.key and self._is_dropped(key)})
        self.end_dropped()

    def _is_dropped(self, key: str) -> bool:
        is_in_plan = is_of_item(key) and self._plan.task(key) is not None
        return is_in_plan and not self._plan.is_to_do(key)

    def end_dropped(self) -> None:
        """Record the end of items that the agent has dropped after they had begun: not while they run, nor while one of
        their effects is in doubt."""
        if self.context.only is not None or self.context.rehearsal is not None:
            return
        running = set() if self.parallel is None else {each.key for each in self.parallel.open}
        left = [key for key, scope in self.recorded.scopes.items() if not scope.started and key not in running]
        for key in filter(self._is_dropped, left):
            uncalled = self._uncalled({key: self._claims_of(key)}, is_over=True).get(key, ())
            self.journal.add(ScopeCommitted(agent=self.path, scope=key, cancelled="no longer to do", uncalled=uncalled))
            self.projector.mark(self.files.state, self.files.steps)
            self.context.pace.flush_later()

    # Effects that are called no more

    def record_uncalled(self) -> None:
        """The agent has returned: tell which effects it has not called again, by itself and in the scopes that it
        leaves open."""
        scopes = {self.root.key: self.root.claims}
        if self.root.key == ROOT and self.context.only is None:
            scopes |= {key: self._claims_of(key) for key in self.recorded.scopes if key != ROOT}
        found = self._uncalled(scopes)
        for key in scopes:
            calls = found.get(key, ())
            if [*calls] != self.recorded.scopes[key].uncalled:
                self.journal.add(Uncalled(agent=self.path, scope=key, calls=calls))

    def _uncalled(self, scopes: dict[str, Claims], *, is_over: bool = False) -> dict[str, tuple[Key, ...]]:
        """`is_over`: no question about them, because the item has been dropped."""
        return tell_uncalled(self, scopes, ask=self.agent.effects == "strict" and not is_over)

    def _claims_of(self, key: str) -> Claims:
        """Those of the last attempt; none if this call of the agent has made none."""
        return self._claims.get(key) or Claims(self.recorded.scopes[key])


def _running(scope: ScopeRun | None) -> str:
    return "several scopes ran" if scope is None else f"the scope ran: {scope.title!r}"


async def _uncancel(task: asyncio.Task[Any], times: int, before: int) -> None:
    """This task goes on after so many cancellations, unless it has got others, too, since there were `before`."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # the last one may not have arrived yet
    for _ in range(times):
        task.uncancel()
    if task.cancelling() > before:
        raise asyncio.CancelledError
