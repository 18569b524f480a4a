"""One attempt at a scope: it returns recorded results, runs other calls, and records their results."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from functools import partial as bind
from typing import Any, NoReturn

from msgspec import Raw, Struct, field

from ...workspace.base import AgentError, UsageError, time_text
from ...workspace.journal.records import Key, Message, Output, StepCompleted, StepFailed, StepProgress
from ...workspace.state import Scope, blobs
from ..agent import brief, of_a_future
from ..steps import A_DAY, MODEL, Prompt, Step, canonical, encode
from . import identity, performing, raised
from .claims import Claims
from .context import AgentContext
from .forgotten import Made
from .stopping import Suspended, Suspension

PREVIEW = 60
"""Bytes of the arguments that a record shows."""

_EFFECT_PREVIEW = 400
"""The same for an effect, because a person may have to recognise it."""

current_call: ContextVar[Call | None] = ContextVar("current_call", default=None)
"""The call whose function runs here."""


class Call(Struct, eq=False):
    """A call of a step or effect without a recorded result."""

    scope: ScopeRun
    step: Step[Any]
    key: Key
    no: int
    arguments: dict[str, Any]
    encoded: bytes  # the arguments as canonical JSON
    named: str | None = None
    outer: Call | None = None  # that it is made in
    counts: dict[tuple[str, str], int] = field(default_factory=dict)  # of the calls its function makes
    made: Made | None = None  # of those, the ones that have not begun
    place: int = field(default_factory=raised.new_place)
    prompts: dict[str, str] = field(default_factory=dict)  # those that went into it, with their versions
    model: str = ""  # the fallback model of this attempt
    was_stopped: bool = False  # an inner call has raised because the agent must stop
    ended: bool = False  # its function is not running any more
    in_doubt: bool = False  # an attempt at it may have happened, so a later one can't say that it has not
    recovered: int = 0  # characters of an earlier attempt's answer that the last one has continued

    def keys(self) -> Iterator[Key]:
        """The identities under which its inner calls may be recorded, the current one first."""
        yield self.key
        if not self.named:
            name, _, n = self.key
            outers = self.outer.keys() if self.outer else (None,)
            for digest in identity.earlier(name, self.arguments, self.step.shape.defaults, outers):
                yield name, digest, n

    @property
    def words(self) -> str:
        """`send("weekly")` of 'Send it', for people."""
        of = f" of {self.scope.title!r}" if self.scope.title else ""
        return f"{self.key[0]}{self.identity()['call']}{of}"

    def check_unchanged(self) -> None:
        """Before another attempt: the arguments must not have changed, because the record would name other
        arguments."""
        if changed := identity.changed(self.arguments, self.encoded):
            raise AgentError(
                f"{self.step.name} can't be tried again: its first attempt has changed its argument {changed!r}",
                why="its result would be that of other arguments", remedy="let it change a copy: copy.deepcopy(...)",
            )  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """The fields of every record about this call."""
        preview, most = self.encoded[1:-1], _EFFECT_PREVIEW if self.step.is_effect else PREVIEW
        text = preview[:most].decode(errors="ignore") + ("…" if len(preview) > most else "")
        name, args, n = self.key
        agent = self.scope.agent.path
        return {
            **({"agent": agent} if agent else {}), **({"prompts": self.prompts} if self.prompts else {}),
            "scope": self.scope.key, "no": self.no, "step": name, "args": args, "n": n,
            "call": f"({self.named}: {text})" if self.named else f"({text})",
        }  # fmt: skip


class ScopeRun:
    """One attempt at a scope. Calls of several tasks may run in it at once."""

    def __init__(self, agent: AgentContext, key: str, title: str, recorded: Scope):
        self.agent, self.context, self.key, self.title = agent, agent.context, key, title
        self.recorded = recorded
        self.claims = Claims(recorded)
        self._unclaimed = identity.Unclaimed(recorded.numbers)
        self.outputs: dict[str, Output] = {}
        self.asked: set[str] = set()  # the open questions that this attempt asks, too
        self.spent: dict[str, int] = {}  # how often what, outside its steps
        self.messages: list[Message] = []
        self.tasks: list[str] = []  # from the inbox, that are done when this commits
        self.ended = self.was_stopped = False
        self.abandoned = False  # it has failed; its sub-agents must stop
        self._task = asyncio.current_task()  # the one that runs the scope's function
        self._loop = asyncio.get_running_loop()
        self.made, self.place = Made(), raised.new_place()
        self._calls_made = 0
        self._cancelled: dict[Key, int] = {}  # by the agent itself: how many calls were made until then
        self._counts: dict[tuple[str, str], int] = {}
        self._names = identity.Names()
        self._last_number = recorded.last_number
        self._under_way = 0
        self._threads: set[asyncio.Future[Any]] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def call(
        self, step: Step[Any], args: tuple[Any, ...], kwargs: dict[str, Any], named: str | None = None
    ) -> Coroutine[Any, Any, Any]:
        """A call of `step` in this scope: its recorded result, or the result of running it when awaited."""
        outer, mark = current_call.get(), object()
        made = self.made
        if outer is not None:
            made = outer.made = outer.made or Made()
        coroutine = self._call(made, mark, step, args, kwargs, named)
        made.add(mark, coroutine, step.name)
        return coroutine

    async def _call(
        self, made: Made, mark: object, step: Step[Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        named: str | None,
    ) -> Any:  # fmt: skip
        made.begun(mark)
        context = self.context
        self.agent.check_going_on()
        if self.ended:
            raise AgentError(
                f"{step.name} was called after its scope had ended",
                remedy="await every task that calls steps before the scope's function returns",
            )
        if step.is_effect:
            check_outside_steps(f"the effect {step.name} was called")
        outer = current_call.get()
        counts = self._counts if outer is None else outer.counts
        if asyncio.get_running_loop() is not self._loop:
            raise AgentError(
                f"{step.name} was called from another event loop", why="a run has one",
                remedy="make the step that calls it `async def`, and await it there",
            )  # fmt: skip
        self._names.check(step.name, step.code, outer.key[0] if outer else "", context.store.url)
        shape = step.shape
        arguments = shape.bind(step.name, args, kwargs)
        encoded = canonical(arguments, step.name)
        name, within = step.name, outer.key if outer else None
        digest = identity.digest_of(named.encode() if named else encoded, within)
        n = counts.get((name, digest), 0)
        counts[name, digest] = n + 1
        key = (name, digest, n)
        if key not in self.recorded.numbers and not named and self._unclaimed.has(name):
            outers = outer.keys() if outer else (None,)
            found = ((name, each, n) for each in identity.earlier(name, arguments, shape.defaults, outers))
            key = next((each for each in found if each in self._unclaimed), key)
        self._unclaimed.claim(key)
        self._calls_made += 1
        place = self.place if outer is None else outer.place
        done = self.recorded.done.get(key)
        if done is not None:
            context.tally.answered += 1
            if done.effect:
                self.claims.claim(key)
                if context.doubts.rechecks.take((self.agent.path, self.key, key)):
                    await step.recheck(Call(self, step, key, done.no, arguments, encoded, named), done)
            try:
                return shape.codec.decode(blobs.fetch(context.store, done))
            except UsageError as error:
                if done.how == "resolved":
                    step.ask_again(Call(self, step, key, done.no, arguments, encoded, named), error)
                raise
        failed = self.recorded.failed.get(key)
        if failed is not None and not failed.cancelled:
            context.tally.answered += 1
            failure = raised.again(failed.error)
            raised.mark(failure, place, key, is_replayed=True)
            raise failure
        context.limits.step_begins(context.agents.calls)
        self.agent.check_going_on()
        call = Call(self, step, key, self._number(key), arguments, encoded, named, outer)
        for value in arguments.values():
            if type(value) is Prompt:
                call.prompts[value.name] = value.version
        if context.watch:
            context.watch.step_begun(self.agent.path, step.name)
        context.agents.calls += 1
        try:
            with self.busy():
                return await step.perform(call)
        except (Exception, asyncio.CancelledError) as error:
            is_replayed = raised.is_replayed(raised.calls_of(error, call.place))
            raised.mark(error, place, key, is_replayed=is_replayed)
            raise
        finally:
            context.agents.calls -= 1

    @contextmanager
    def busy(self) -> Iterator[None]:
        """The scope can't end while the body runs."""
        self._under_way += 1
        self._quiet.clear()
        try:
            with self.agent.busy():
                yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()

    def abandon(self) -> None:
        """The scope has failed. Its sub-agents stop."""
        self.abandoned = True
        self.context.agents.stop_abandoned()

    def is_unclaimed(self, key: Key) -> bool:
        """Whether an earlier attempt has recorded this call and this attempt has not made it."""
        return key in self._unclaimed

    async def durable(self) -> None:
        """Return when all records so far are durable. No other code can be about to record something if no other call
        runs and this is not one of several tasks, as `asyncio.gather` makes them."""
        alone = self.context.agents.calls <= 1 and self.agent.is_alone and asyncio.current_task() is self._task
        await self.context.journal.durable(alone=alone)

    async def quiet(self) -> None:
        """Return when no call of this scope runs in a task, or in a thread that must be waited for."""
        await self.made.settle()
        while (self._under_way or self._threads) and not self.context.stopping.drain.forced:
            await self._quiet.wait()
            if self._threads:
                await asyncio.wait(self._threads)
            await self.made.settle()  # a task may have waited for that to begin with its own

    async def invoke(self, call: Call, injected: dict[str, Any]) -> Any:
        """Run the function of a call, in a thread if it is not async."""
        step = call.step
        call.counts, call.made, call.ended = {}, None, False
        drain = self.context.stopping.drain
        try:
            with (drain.held if step.is_effect else drain.working)(call.words):  # never between an effect's two halves
                result = await self._invoke(call, step, injected)
        except (Exception, asyncio.CancelledError) as error:
            if call.was_stopped:
                raise self.agent.stopped() from error
            raise
        if call.was_stopped:
            raise self.agent.stopped()  # its return value is incomplete, because calls were refused
        return result

    def stop(self) -> None:
        """The agent must stop: running calls of this scope have no result."""
        self.was_stopped = True
        if (call := current_call.get()) is not None:
            call.was_stopped = True

    async def _invoke(self, call: Call, step: Step[Any], injected: dict[str, Any]) -> Any:
        token = current_call.set(call)
        try:
            arguments = {**call.arguments, MODEL: call.model} if call.model else call.arguments
            if step.shape.run:
                injected = {**injected, step.shape.run: self.agent.run}
            args, kwargs = step.shape.unbind(arguments, injected)
            if step.is_async:
                result = await step.function(*args, **kwargs)
            else:
                result = await self.in_thread(bind(step.function, *args, **kwargs))
            if call.made is not None and step.is_effect:
                self.made.take(call.made)  # it has happened, which is more important
            elif call.made is not None:
                await call.made.settle()
                call.made.check(step.name, self.context.store.url)
            return result
        finally:
            call.ended = True
            current_call.reset(token)

    async def in_thread(self, function: Any) -> Any:
        within = bind(copy_context().run, of_a_future(function))
        future = asyncio.get_running_loop().run_in_executor(self.context.threads, within)
        self._threads.add(future)
        future.add_done_callback(self._threads.discard)
        return await asyncio.shield(future)

    async def completed(self, call: Call, result: Any, began: float, **facts: Any) -> Any:
        """Record a result; it is durable when this returns. Returns the value in the form of a recorded one."""
        data = encode(result, f"the result of {call.step.name}")
        return await self.keep(call, data, ms=int((time.monotonic() - began) * 1000), **facts)

    async def keep(self, call: Call, data: bytes, *, soon: bool = False, **facts: Any) -> Any:
        """Record a result as it is. `soon`: it need not be durable when this returns, only before later records."""
        context = self.context
        answer = call.step.shape.codec.decode(data)
        kept = blobs.keep(context.store, data, context.journal.epoch)
        effect = call.step.is_effect
        context.journal.add(
            StepCompleted(
                **call.identity(), result=kept.result, blob=kept.blob, effect=effect, model=call.model, **facts
            )
        )
        # A streamed answer's file is removed once it is recorded, so that one is waited for.
        if (self.agent.pipelined or soon) and not effect and call.step.shape.partial is None:
            context.pace.flush_soon(self.agent.files)
            return answer
        await self.durable()
        context.pace.step_is_done(self.agent.files)
        return answer

    def failed(self, call: Call, error: BaseException, attempt: int = 1, *, final: bool = False, **facts: Any) -> None:
        """Record that a call has raised; `final`: for good. Durable with the next commit."""
        failure = raised.kept(error) if final and isinstance(error, Exception) else brief(error)
        if facts.get("cancelled"):
            self._cancelled[call.key] = self._calls_made
        # A failure that its function has handled before an error of its own would bring it to that error again.
        inner = raised.calls_of(error, call.place) or [key for key in self.recorded.failed if key[:2] in call.counts]
        self.context.journal.add(
            StepFailed(
                **call.identity(), error=failure, attempt=attempt, effect=call.step.is_effect, final=final,
                calls=tuple(inner), **facts,
            )
        )  # fmt: skip

    @property
    def is_stopping(self) -> bool:
        """A cancellation now does not come from the agent itself."""
        context, agent = self.context, self.agent
        stopping = context.stopping
        is_told = stopping.suspension or stopping.failed or stopping.drain.forced or self.was_stopped or self.abandoned
        return bool(is_told) or agent.is_closing or agent.is_abandoned

    def ended_by(self, error: BaseException) -> tuple[tuple[Key, ...], bool]:
        """The calls that run again after this error has ended the scope, and whether the error was only raised from the
        record: the process was killed before that was recorded. A call that the agent has cancelled is included unless
        the agent has made another call since."""
        calls = raised.calls_of(error, self.place)
        last = [key for key, number in self._cancelled.items() if number == self._calls_made and key not in calls]
        return (*calls, *last), raised.is_replayed(calls)

    async def progress(self, call: Call, value: Any) -> None:
        if call.ended:
            late = f"run.progress() was called after {call.words} had returned"
            raise AgentError(late, remedy="await every task of a step before it returns")
        data = encode(value, "the progress")
        self.context.journal.add(StepProgress(**call.identity(), value=Raw(data)))
        await self.durable()
        self.context.limits.look()
        self.agent.check_going_on()

    # Steps

    async def perform(self, call: Call) -> Any:
        """Run a step, with its retries, and record its result."""
        return await performing.perform(call, self.recorded.failed.get(call.key))

    def sleep(self, seconds: float, reason: str) -> NoReturn:
        """Let the run sleep without a process, and resume in `seconds`."""
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        reason += ", in more than a day; it is called again after one" if seconds >= A_DAY else ""
        self.context.stopping.suspend(Suspension("sleeping", reason, time_text(until)))
        raise Suspended

    def _number(self, key: Key) -> int:
        number = self.recorded.numbers.get(key)
        if number is None:
            self._last_number += 1
            number = self._last_number
        return number


def check_outside_steps(what: str) -> None:
    """A step can't do what belongs to a commit: at a re-entry a recorded step does not run."""
    call = current_call.get()
    if call is not None:
        raise AgentError(
            f"{what} inside {call.step!r}", why="when a step is answered from the record, its function does not run",
            remedy="let the step return what is needed, and do this in the scope's function",
        )  # fmt: skip
