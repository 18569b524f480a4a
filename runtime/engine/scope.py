"""One attempt at a scope: it returns recorded results, and lets other calls be performed. It may end by an exception,
with a record, and is perhaps entered again at once; or by crashes. Before anything commits or returns over effects in
doubt, a person is asked.

Each function that asks stops its caller itself. An uninterrupted block continues past other questions, but must not
commit over its own. In a rehearsal nothing is performed: what would be is noted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from types import CodeType
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar

from msgspec import Struct, field

from ...workspace.base import AgentError, UsageError, counted
from ...workspace.journal import (
    Failure,
    Kept,
    Key,
    OfCall,
    PauseRequested,
    ScopeFailed,
    StepCompleted,
    StepStarted,
    blobs,
)
from ...workspace.lifecycle import Workspace
from ...workspace.state import ROOT, STUCK_AFTER, Scope, crash_suspects
from ...workspace.views import step_path
from ..agent import Codec, OwnStep, Prompt, Step, canonical, describe, encode, of_storage, place, round_trip
from ..live import PendingCalls, StopRequests, Suspended, Suspension
from . import open_scope, performing
from .context import AgentContext, Context
from .open_scope import Claims, OpenCall, OpenScope, check_outside_steps, current_call, scope_of, waits


class ScopeRun(OpenScope):
    """One attempt at a scope. Calls of several tasks may run in it at once."""

    def __init__(self, agent: AgentContext, key: str, title: str, recorded: Scope):
        super().__init__(agent, key, title, recorded)
        self._loop = asyncio.get_running_loop()
        self._codes: dict[tuple[str, str], object] = {}  # of the functions that were called by each name
        self._counts: dict[tuple[str, str], int] = {}

    def call(
        self, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any], named: str | None = None
    ) -> Coroutine[Any, Any, Any]:
        """A call of `step` in this scope: its recorded result, or the result of running it when awaited."""
        made, mark = self._place(), object()
        coroutine = self._call(made, mark, step, args, kwargs, named)
        made.add(mark, coroutine, step.name)
        return coroutine

    def expect(
        self, method: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...], kwargs: dict[str, Any], name: str
    ) -> Coroutine[Any, Any, Any]:
        """A call of something else that must be awaited, which is known under `name`."""
        made, mark = self._place(), object()

        async def begun() -> Any:
            made.begun(mark)
            return await method(*args, **kwargs)

        coroutine = begun()
        made.add(mark, coroutine, name)
        return coroutine

    def _place(self) -> PendingCalls:
        """Where a call is made: in another call, or outside all others."""
        outer = current_call.get()
        if outer is None:
            return self.work.made
        outer.made = outer.made or PendingCalls(self.context.looks)
        return outer.made

    async def _call(
        self,
        made: PendingCalls,
        mark: object,
        step: Step,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        named: str | None,
    ) -> Any:
        made.begun(mark)
        self.check_going_on()
        outer = current_call.get()
        self._check_may_call(step, outer)
        arguments = step.shape.bind(step.name, args, kwargs)
        encoded = canonical(arguments, step.name)
        key = self._key(step, arguments, encoded, named, outer)
        context = self.context
        done = self.recorded.done.get(key)
        if done is not None:
            context.tally.answered += 1
            self.newest_call = done.no
            return await self._answer(OpenCall(self, step, key, done.no, arguments, encoded, named), done)
        failed = self.recorded.failed.get(key)
        if failed is not None and not failed.cancelled:
            context.tally.answered += 1
            failure = performing.recorded_error(failed.error)
            open_scope.mark_raised(failure, self.place if outer is None else outer.place, key, is_replayed=True)
            raise failure
        if context.rehearsal is not None:
            number = self.numbering.number(key)
            await context.rehearsal.at_call(OpenCall(self, step, key, number, arguments, encoded, named, outer))
        context.limits.step_begins(context.agents.calls)
        self.check_going_on()
        self.newest_call = number = self.numbering.number(key)
        return await self._perform(OpenCall(self, step, key, number, arguments, encoded, named, outer))

    def _check_may_call(self, step: Step, outer: OpenCall | None) -> None:
        if self.ended:
            raise AgentError(
                f"{step.name} was called after its scope had ended",
                remedy="await every task that calls steps before the scope's function returns",
            )
        if step.is_effect:
            check_outside_steps(f"the effect {step.name} was called")
            self.work.made.check_dropped(f"the effect {step.name}", self.context.store.url)
        if asyncio.get_running_loop() is not self._loop:
            raise AgentError(
                f"{step.name} was called from another event loop",
                why="a run has one",
                remedy="make the step that calls it `async def`, and await it there",
            )
        known = self._codes.setdefault((step.name, outer.key[0] if outer else ""), step.code)
        if known is not step.code and known != step.code:
            self._refuse_two(step.name, known, step.code)

    def _refuse_two(self, name: str, *codes: object) -> NoReturn:
        root = self.context.store.url
        places = (
            f"{place(each.co_filename, root)}:{each.co_firstlineno}" for each in codes if isinstance(each, CodeType)
        )
        raise AgentError(
            f"two steps are called {name!r} here",
            path=", ".join(sorted(places)) or None,
            why="after a restart a call of one could get a result of the other",
            remedy='give one of them another name, as in @step(name="...")',
        )

    def _key(
        self, step: Step, arguments: dict[str, Any], encoded: bytes, named: str | None, outer: OpenCall | None
    ) -> Key:
        """The key that the call is recorded under, perhaps from a time when its function had fewer parameters."""
        name, within = step.name, outer.key if outer else None
        counts = self._counts if outer is None else outer.counts
        digest = open_scope.digest_of(named.encode() if named else encoded, within)
        n = counts.get((name, digest), 0)
        counts[name, digest] = n + 1
        key = (name, digest, n)
        numbering = self.numbering
        if not numbering.is_recorded(key) and any(map(numbering.has_unclaimed, (name, *step.former_names))):
            outers = outer.keys() if outer else (None,)
            found = ((*each, n) for each in open_scope.earlier(step, arguments, named, outers))
            key = next((each for each in found if numbering.is_unclaimed(each)), key)
        numbering.claim(key)
        return key

    async def _answer(self, call: OpenCall, done: StepCompleted) -> Any:
        """The recorded result. An effect may have to be verified again."""
        step = call.step
        if done.effect:
            self.claims.claim(call.key)
            if self.context.only is not None:
                self.context.only.called.add((self.agent.path, self.key, call.key))
            if self.context.rehearsal is None and self.context.doubts.rechecks.take(
                (self.agent.path, self.key, call.key)
            ):
                await step.recheck(call, done)
        try:
            data, codec = blobs.fetch(self.context.store, done), step.shape.codec
            is_own = isinstance(step, OwnStep) and not step.is_effect  # another version may record more there
            return codec.recorded(data, keeps_unknown=is_own or self.agent.keeps_unknown)
        except UsageError as error:
            if done.how == "resolved":
                step.ask_again(call, error)
            self.context.schemas.forget(done.schema)
            again = "" if done.effect else ', or add `"redo": true`'
            raise UsageError(
                f"the recorded result of {step.name}{done.call} does not fit its type",
                path=step_path(self.agent.folder, self.key, self.title, done),
                why=str(error.__cause__),
                remedy=f"write a fitting `result` into this file{again}. A step of another name does not find it",
            ) from error

    async def _perform(self, call: OpenCall) -> Any:
        """Run the call; its result is on record when this returns."""
        context, step = self.context, call.step
        for value in call.arguments.values():
            if type(value) is Prompt:
                call.prompts[value.name] = value.version
        if context.watch:
            context.watch.step_begun(self.agent.path, step.name)
        context.agents.calls += 1
        if step.is_effect or not isinstance(step, OwnStep):  # `run.ask` and the like say themselves that they wait
            context.running.begin(call)
        try:
            with self.work:
                try:
                    return await (step.perform(call) if isinstance(step, OwnStep) else performing.perform(call))
                finally:
                    self.work.resting.discard(call)
        except (Exception, asyncio.CancelledError) as error:
            is_replayed = open_scope.are_replayed(open_scope.raising_calls(error, call.place))
            at = self.place if call.outer is None else call.outer.place
            open_scope.mark_raised(error, at, call.key, is_replayed=is_replayed)
            raise
        finally:
            context.running.end(call)
            context.agents.calls -= 1


class Returned(NamedTuple):
    """A result in the form for a record, and as every later start will read it."""

    kept: Kept
    value: Any


def returned(workspace: Workspace, value: Any, what: str, codec: Codec) -> Returned:
    """NotSerializable or UsageError for a value that can't be kept: here, and not at every start after it has been
    recorded."""
    data = workspace.redactor.json(encode(value, what))
    round_trip.check_private(value, codec, what)
    answer, data = codec.returned(data)
    is_kept = data != b"null"
    return Returned(blobs.keep(workspace.store, data, workspace.journal.generation) if is_kept else Kept(), answer)


# Its end

T = TypeVar("T")


class RaisedFromRecord(Exception):
    """The exception that ended a scope was only raised from the record, which has forgotten it now."""


async def until_fresh(enter: Callable[[], Awaitable[T]]) -> T:
    """Enter a scope; again, as long as it only ends by recorded exceptions."""
    while True:
        with suppress(RaisedFromRecord):
            return await enter()


def record_of(scope: OpenScope, error: BaseException) -> ScopeFailed | None:
    """The record of a scope that `error` has ended. None: no record, since the run must stop, or the disk fails. Call
    it before the scope is abandoned."""
    found = open_scope.raising_calls(error, scope.place)
    is_replayed = open_scope.are_replayed(found)
    # A call that the agent has cancelled runs again unless the agent has made another one since.
    calls = (*found, *(key for key in scope.numbering.cancelled_last() if key not in found))
    is_cancelled = isinstance(error, asyncio.CancelledError) and bool(calls) and not scope.is_stopping
    if not is_cancelled and (not isinstance(error, Exception) or of_storage(error) is not None):
        return None
    failure = describe(error, scope.context.store.url)
    uncounted = is_replayed or is_cancelled
    calls = calls or _untold(scope)
    return ScopeFailed(agent=scope.agent.path, scope=scope.key, error=failure, calls=calls, uncounted=uncounted)


def _untold(scope: OpenScope) -> tuple[Key, ...]:
    """Calls whose failures the agent has handled before an error of its own. They run again: raised from the record,
    they would lead to that error at every start. Not those that it may have acted on: an effect, an agent, a plan or
    another scope came after."""
    recorded, agent = scope.recorded, scope.agent.recorded
    if scope.is_stopping or (scope.key == ROOT and (agent.has_plan or agent.results or len(agent.scopes) > 1)):
        return ()
    for path, each in scope.context.moment.agents.items():
        if path and path.rpartition("/")[0] == agent.path and each.spawned_in == scope.key:
            return ()
    effects = (*recorded.started, *recorded.settled, *(key for key, record in recorded.done.items() if record.effect))
    last = max((recorded.numbers.get(key, 0) for key in effects), default=0)
    return tuple(key for key, record in recorded.failed.items() if record.no > last)


def is_entered_again(failed: ScopeFailed | None, error: BaseException) -> bool:
    """Whether the scope is entered again at once."""
    return failed is not None and failed.uncounted and isinstance(error, Exception)


def check_not_stuck(context: Context, scope: Scope) -> None:
    """A run whose process crashes again and again, with nothing new on record, is paused as stuck. Call it before
    `scope` is entered, also for the first time: the agent itself is one, too."""
    if scope.crashes < STUCK_AFTER:
        return
    titles = [repr(title) for title in crash_suspects(context.moment.agents)]
    ran = f" while {' and '.join(titles)} ran" if titles else ""
    why = f"the process has crashed {scope.crashes} times{ran}, with nothing new on record"
    context.stopping.pause(PauseRequested(reason=f"stuck: {why}", by="satchel"), Failure("Crashed", why))
    raise Suspended


class _Left(NamedTuple):
    call: StepStarted | StepCompleted
    why: Literal["unknown_outcome", "unreached", "uncalled"]


def ask_about(agent: AgentContext, scope: OpenScope) -> None:
    """Ask about the effects of one scope, and of the agents it has spawned. Suspended if there is a question."""
    _ask(agent, [*_in_scope(agent, scope), *_in_agents(agent, scope.key)])


def tell_uncalled(agent: AgentContext, scopes: Mapping[str, Claims], *, ask: bool) -> dict[str, tuple[Key, ...]]:
    """The effects of these scopes that earlier attempts have done and the last one has not called: they are told to who
    watches the run. With `ask` a person is asked about them: Suspended if there are any."""
    found = {key: calls for key, claims in scopes.items() if (calls := claims.uncalled)}
    if (rehearsal := agent.context.rehearsal) is not None:
        for key, calls in found.items():
            rehearsal.at_uncalled(agent.recorded.scopes[key].title, calls, asks=ask)
    if ask:
        _ask(agent, [_Left(done, "uncalled") for calls in found.values() for done in calls])
    for key, calls in found.items():
        title = agent.recorded.scopes[key].title
        of = f" of {title!r}" if title else ""
        said = ", ".join(f"{done.step}{done.call}" for done in calls)
        agent.context.notice("uncalled", f"effects{of} were done before and not called again: {said}")
    return {key: tuple(done.key for done in calls) for key, calls in found.items()}


def ask_about_all(agent: AgentContext, root: OpenScope) -> None:
    """An agent can't finish while one of its effects is unresolved, even if its item was removed or ticked
    meanwhile."""
    scopes = {key: scope for key, scope in agent.recorded.scopes.items() if key != root.key}
    others = [_Left(started, "unreached") for scope in scopes.values() for started in scope.started.values()]
    _ask(agent, [*_in_scope(agent, root), *others, *_in_agents(agent, None)])


def _in_scope(agent: AgentContext, scope: OpenScope) -> Iterator[_Left]:
    recorded = agent.recorded.scopes.get(scope.key)
    if recorded is not None and recorded.started:
        for key, started in recorded.started.items():
            yield _Left(started, "unknown_outcome" if scope.claims.is_claimed(key) else "unreached")


def _in_agents(agent: AgentContext, spawned_in: str | None) -> Iterator[_Left]:
    """The same for effects of sub-agents that were not spawned again, or raised before they reached the effect. Those
    spawned in one scope, or all."""
    agents, below = agent.context.moment.agents, f"{agent.path}/" if agent.path else ""
    for path in agent.context.doubts.agents:
        if not path.startswith(below) or path == agent.path:
            continue
        child = below + path[len(below) :].partition("/")[0]
        if spawned_in is None or agents[child].spawned_in == spawned_in:
            for scope in agents[path].scopes.values():
                yield from (_Left(started, "unreached") for started in scope.started.values())


def _ask(agent: AgentContext, left: list[_Left]) -> None:
    for call, why in left:
        identity = {name: getattr(call, name) for name in OfCall.__struct_fields__}
        agent.context.doubts.ask(identity, why)
    if left:
        raise Suspended


# A rehearsal: an agent is entered over a copy of its run. Recorded calls are answered, and nothing else is done. A
# branch of the agent ends at the first call, question or resource that is not on record, and where a scope would begin.
# It is held there until all other code of the agent waits, too. Then the run is over

Kind = Literal["next", "again", "gone", "leaves", "asks", "fails"]
"""What a branch comes to: `next` is new work, as it would be without changed code."""

_LOOK = 0.02
_LOOKS = 8
"""So many looks in a row all code of the agent waits: then it waits for what it does not get."""


class RehearsalFinding(Struct, frozen=True):
    """One thing that the agent would do. `item` is the title of its scope."""

    kind: Kind
    words: str
    item: str = ""


class Rehearsal(Struct, eq=False):
    """What one rehearsal has found."""

    found: list[RehearsalFinding] = field(default_factory=list)

    async def at_call(self, call: OpenCall) -> NoReturn:
        """This call is not on record. It is judged when all others wait: another task may claim a record until then."""
        try:
            await self.hold(call.scope.context.stopping)
        finally:
            kind, words = _judged(call)
            self.found.append(RehearsalFinding(kind, words, call.scope.title))

    def at_return(self, open_items: int) -> None:
        """The agent has returned, and so many items of its plan are not done."""
        if open_items:
            self.found.append(
                RehearsalFinding("leaves", f"the agent returns, and leaves {counted(open_items, 'item')} open")
            )

    def at_uncalled(self, title: str, calls: Sequence[StepCompleted], *, asks: bool) -> None:
        """A scope would commit, or be left open, without these effects; with `asks` the run would ask about them."""
        for done in calls:
            words = f"{done.step}{done.call} was done and is not called any more"
            kind: Kind = "asks" if asks else "gone"
            self.found.append(RehearsalFinding(kind, words if asks else f"{words}; it stays done", title))

    async def at_scope(self, stopping: StopRequests, title: str) -> NoReturn:
        """A scope would begin that has not begun yet."""
        self.found.append(RehearsalFinding("next", f"{title!r} begins", title))
        await self.hold(stopping)

    def at_resource(self, stopping: StopRequests, name: str) -> NoReturn:
        """The agent needs a resource, and none is opened."""
        self.found.append(RehearsalFinding("next", f"it uses the resource {name!r}"))
        self._end(stopping)
        raise Suspended

    def failed(self, stopping: StopRequests, title: str, error: BaseException) -> NoReturn:
        """The code of a scope has raised."""
        self.found.append(RehearsalFinding("fails", f"{type(error).__name__}: {error}", title))
        self._end(stopping)
        raise Suspended from error

    async def hold(self, stopping: StopRequests) -> NoReturn:
        """Let this branch not continue, until all others wait and the run is over."""
        quiet = 0
        while not stopping.suspension:
            await asyncio.sleep(_LOOK)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            quiet = quiet + 1 if all(waits(task) for task in others if scope_of(task) is not None) else 0
            if quiet >= _LOOKS:
                self._end(stopping)
        raise Suspended

    @staticmethod
    def _end(stopping: StopRequests) -> None:
        if not stopping.suspension:
            stopping.suspend(Suspension("paused", "the rehearsal is over"))


def _judged(call: OpenCall) -> tuple[Kind, str]:
    """What it means that the agent makes this call."""
    scope, name = call.scope, call.step.name
    words = f"{name}{call.identity()['call']}"
    if call.key in scope.recorded.started:
        return "next", f"the effect {words} is in doubt, as it is now"
    if call.step.is_effect and (uncalled := scope.claims.uncalled):
        others = ", ".join(f"{done.step}{done.call}" for done in uncalled)
        return "asks", f"the effect {words} would begin, but {others} was done and is not called any more"
    names = (name, *call.step.former_names)
    known = [
        done
        for key, done in scope.recorded.done.items()
        if key[0] in names and not done.effect and scope.numbering.is_unclaimed(key)
    ]
    if known:
        return "again", f"the step {words} runs, in place of the recorded {known[0].step}{known[0].call}"
    left = [f"{done.step}{done.call}" for key, done in scope.recorded.done.items() if scope.numbering.is_unclaimed(key)]
    return "next", f"{words} comes next" + (f", before the recorded {left[0]}" if left else "")
