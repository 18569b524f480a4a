"""One attempt at a scope: it returns recorded results, and lets other calls be performed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ...workspace.base import AgentError, UsageError
from ...workspace.journal import Kept, Key, StepCompleted, blobs
from ...workspace.lifecycle import Workspace
from ...workspace.state import Scope
from ...workspace.views import step_path
from ..live import PendingCalls
from ..steps import Codec, OwnStep, Prompt, Step, canonical, encode, round_trip
from . import open_scope, performing, raised
from .context import AgentContext
from .open_scope import OpenCall, OpenScope, check_outside_steps, current_call


class ScopeRun(OpenScope):
    """One attempt at a scope. Calls of several tasks may run in it at once."""

    def __init__(self, agent: AgentContext, key: str, title: str, recorded: Scope):
        super().__init__(agent, key, title, recorded)
        self._loop = asyncio.get_running_loop()
        self._names = open_scope.CallNames()
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
            failure = raised.again(failed.error)
            raised.mark(failure, self.place if outer is None else outer.place, key, is_replayed=True)
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
        self._names.check(step.name, step.code, outer.key[0] if outer else "", self.context.store.url)

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
            is_replayed = raised.is_replayed(raised.calls_of(error, call.place))
            place = self.place if call.outer is None else call.outer.place
            raised.mark(error, place, call.key, is_replayed=is_replayed)
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
