"""Effects: never done twice unknowingly.

- claims: before an effect without a record starts, every recorded one of its name must have been called again
- intent: `step.started` is durable before the function runs
- doubt: one of which it is not known how it ended is verified, repeated under its key if idempotent, or asked about
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial as bind
from typing import Any, Literal, TypeVar, overload

from msgspec import Raw

from ..workspace import blobs
from ..workspace.errors import AgentError, NotDone, SatchelError, StorageFailed, UsageError
from ..workspace.record import NOTHING, Key, StepCompleted, StepStarted
from ..workspace.scopemoment import Answer, Kept
from . import rechecking, verifying
from .calls import Step, current_scope, runs_going
from .context import Stopped, Suspended
from .failure import said
from .raised import is_kept
from .retry import ONCE, Retry
from .scope import Call

R = TypeVar("R")

_CONTRADICTED = "it is on record as done, and verify says that it has not happened"

_FORGOTTEN = "the journal was lost, and with it whether this was done before"

_TURNS = 20
_ARGUMENTS_KEPT = 4096
"""Bytes of arguments that the intent carries for a person who is asked about it; longer ones are left out."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is known to have happened: the effect's result."""

    result: Any


class Effect(Step[R]):
    """A step that changes the outside world. Never done twice unknowingly: see `effect`."""

    is_effect = True

    def __init__(
        self, function: Callable[..., Any], *, name: str | None, retry: Retry | None,
        verify: Callable[..., Any] | None, not_done: tuple[type[BaseException], ...], idempotent: bool,
    ):  # fmt: skip
        super().__init__(function, name=name, retry=retry, on_partial="restart")
        self.verify, self.idempotent = verify, idempotent
        self.not_done: tuple[type[BaseException], ...] = (NotDone, *not_done)

    def plain(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, and record nothing: it may be done twice. For what is no part of a run, while one
        is going in this process: a web handler, a test."""
        return self.function(*args, **kwargs)

    def outside(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if runs_going:
            raise AgentError(
                f"the effect {self.name} was called outside the run that is going on in this process",
                why="nothing would be recorded, and the next start would do it again; a thread that was made with "
                "run_in_executor or threading does not know of the run",
                remedy=f"await {self.name}(...) in the agent, which runs it in a thread by itself if it is no "
                f"`async def`; or call {self.name}.plain(...) if it is no part of the run",
            )
        return self.function(*args, **kwargs)

    def named(self, name: str) -> Callable[..., Coroutine[Any, Any, R]]:
        """This effect under a name of its own: equal by that name, whatever the arguments. For loops, and for
        arguments that are computed anew at every attempt."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"{self.name}.named() takes a name", why=f"got {name!r}")

        def call(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, R]:
            scope = current_scope.get()
            return self.outside(args, kwargs) if scope is None else scope.call(self, args, kwargs, named=name)

        return call

    async def perform(self, call: Call) -> Any:
        """Do it once, or find out that it was done."""
        return await _perform(call)

    async def recheck(self, call: Call, done: StepCompleted) -> None:
        """Verify one that is on record as done. A person is asked if it has not happened; one that can't be verified is
        believed, unless a person is being asked about it already."""
        with call.scope.busy():
            await _recheck(call, done)

    def ask_again(self, call: Call, error: UsageError) -> None:
        """A person's answer is not of the type it returns."""
        _ask(call, "unknown_outcome", f"the answer can't be used: {error.why}")


@overload
def effect(function: Callable[..., Awaitable[R]], /) -> Effect[R]: ...
@overload
def effect(function: Callable[..., R], /) -> Effect[R]: ...
@overload
def effect(
    *, name: str | None = None, retry: Retry | None = None, verify: Callable[..., Any] | None = None,
    not_done: tuple[type[BaseException], ...] = (), idempotent: bool = False,
) -> Callable[[Callable[..., Any]], Effect[Any]]: ...  # fmt: skip
def effect(
    function: Callable[..., Any] | None = None, /, *,
    name: str | None = None, retry: Retry | None = None, verify: Callable[..., Any] | None = None,
    not_done: tuple[type[BaseException], ...] = (), idempotent: bool = False,
) -> Any:  # fmt: skip
    """Make a function an effect: a step that changes the outside world, and is never done twice unknowingly.

    Its intent is durable before it starts. If it is then not known how it ended (a crash, an exception, a
    cancellation), that is a doubt: `verify`, called with the same arguments (and with `key` and the run, if it has
    parameters for them), returns the result or raises `NotDone`; an `idempotent` one is repeated under the same `key`;
    otherwise the run stops and a person is asked. Exceptions of the types `not_done` say that it certainly has not
    happened. A parameter of the type `Key`, or called `key`, receives the idempotency key, the same at every attempt.
    Not guaranteed: that a request already under way in a frozen process is stopped; the receiver's use of the key does
    that.
    """

    def make(function: Callable[..., Any]) -> Effect[Any]:
        return Effect(
            function, name=name, retry=retry, verify=verify, not_done=tuple(not_done), idempotent=idempotent
        )  # fmt: skip

    return make if function is None else make(function)


async def _perform(call: Call) -> Any:
    scope = call.scope
    scope.claims.claim(call.key)
    if call.key in scope.recorded.started:
        settled = await _settle(call, scope.context.cut_off_by)
        return settled.result if settled else await _begin(call)
    if scope.agent.recorded.forgets(scope.key) and call.key not in scope.recorded.settled:
        settled = await _settle(call, _FORGOTTEN, has_key=not scope.context.moment.lost_nonce)
        return settled.result if settled else await _begin(call)
    if (answer := scope.recorded.answers.get(call.key)) is not None:
        return await _as_answered(call, answer)
    if unclaimed := await _unclaimed(call):
        _ask(call, "unclaimed", _answered_others(call), unclaimed)
    return await _begin(call)


async def _as_answered(call: Call, answer: Answer) -> Any:
    """Do what a person has said of just this call. An answer about another call is not taken: nothing tells whether
    this one is meant."""
    scope = call.scope
    if answer.other is not None:
        scope.claims.claim(answer.other)
        if answer.outcome == "done":
            result = blobs.fetch(scope.context.store, Kept(answer.result, answer.blob))
            try:
                return await scope.keep(call, result, how="resolved")
            except UsageError as error:
                _ask(call, "unclaimed", f"The answer can't be used: {error.why}. Or name it", (answer.other,))
    return await _begin(call)


def _answered_others(call: Call) -> str:
    """Why answers that people have given before do not count for this call."""
    given = [answer.call for key, answer in call.scope.recorded.answers.items() if key[0] == call.key[0]]
    if not given:
        return ""
    return (
        f"The earlier answer is about {call.key[0]}{given[-1]}, which was not called again. If the arguments differ at "
        "every start, no answer can count: name the call"
    )


async def _unclaimed(call: Call) -> tuple[Key, ...]:
    """Recorded calls that were not made again. Tasks beside this one may be about to: what is answered from the record
    does not wait, so a few turns of the loop bring them there. One in doubt is verified as it was called then."""
    scope, name = call.scope, call.key[0]
    for _ in range(_TURNS):
        if not scope.claims.unclaimed(name):
            return ()
        await asyncio.sleep(0)
    for key in scope.claims.unclaimed(name):
        started = scope.recorded.started.get(key)
        if started is not None and (earlier := _earlier(call, started)) is not None:
            await _settle(earlier, scope.context.cut_off_by)
            if key not in scope.agent.recorded.scopes[scope.key].done:
                scope.claims.claim(key)  # it has not happened, so this call may be it or not
    return scope.claims.unclaimed(name)


def _earlier(call: Call, started: StepStarted) -> Call | None:
    """A call that an earlier attempt had begun, if it can be verified with the arguments it had then."""
    effect = _effect(call)
    if effect.verify is None or not len(started.arguments):
        return None
    try:
        arguments = effect.shape.decode(bytes(started.arguments))
    except UsageError:
        return None  # of an earlier version of the effect
    return Call(call.scope, effect, started.key, started.no, arguments, bytes(started.arguments))


async def _begin(call: Call) -> Any:
    """Start it, as often as its retries allow."""
    effect = _effect(call)
    retry = effect.retry
    try:
        return await (retry or ONCE).run(bind(_once, call), lambda error, attempt: None)
    except Exception as error:
        wait = retry.too_long(error) if retry else None
        is_in_doubt = call.key in call.scope.agent.recorded.scopes[call.scope.key].started
        if wait is None or (is_in_doubt and not effect.idempotent):
            if not call.in_doubt and is_kept(error):  # it has certainly not happened, and the agent is told so
                call.scope.failed(call, error, not_done=True, final=True)
            raise
        call.scope.sleep(wait, f"{call.step.name} was told to come back later")


async def _once(call: Call, attempt: int) -> Any:
    """One attempt. What it raises is what certainly has not happened; anything else ends in an answer or a doubt."""
    scope, effect = call.scope, _effect(call)
    if attempt > 1:
        call.check_unchanged()
    key = verifying.idempotency_key(call)
    arguments = Raw(call.encoded) if len(call.encoded) <= _ARGUMENTS_KEPT else NOTHING
    scope.context.journal.add(StepStarted(**call.identity(), idempotency_key=key, arguments=arguments))
    try:
        await scope.durable()
        await scope.context.check_has_it()
        scope.agent.check_going_on()  # another effect may have come into doubt while this one waited
    except BaseException as error:
        scope.failed(call, error, attempt, not_done=not call.in_doubt)
        raise
    began = time.monotonic()
    try:
        result = await scope.invoke(call, {effect.shape.key: key} if effect.shape.key else {})
    except BaseException as error:
        if not _has_not_happened(effect, error):
            return await _may_have_happened(call, error, attempt)
        scope.failed(call, error, attempt, not_done=not call.in_doubt)
        raise
    try:
        return await scope.completed(call, result, began)
    except BaseException as error:  # it has happened, whatever `not_done` says of errors like this one
        return await _may_have_happened(call, error, attempt)


def _has_not_happened(effect: Effect[Any], error: BaseException) -> bool:
    """What its author says of what its function has raised. `not_done=(Exception,)` is not meant for Satchel's own
    errors, which say nothing of the effect; naming one of them is."""
    is_own = isinstance(error, SatchelError | Stopped)
    return any(isinstance(error, kind) and (not is_own or issubclass(kind, SatchelError)) for kind in effect.not_done)


async def _may_have_happened(call: Call, error: BaseException, attempt: int) -> Any:
    """The result, if it can be found out. Otherwise a person is asked, or the error is raised, and the next attempt
    finds out."""
    scope, effect = call.scope, _effect(call)
    if isinstance(error, asyncio.CancelledError):
        # There is no time to find out: that is for the next attempt.
        scope.context.journal.flush()
        has_ended = call.key in scope.agent.recorded.scopes[scope.key].done
        if not (has_ended or scope.agent.is_closing or scope.context.drain.forced):
            scope.context.ask(call.identity(), "unknown_outcome", "it was cancelled")
        raise error
    if isinstance(error, StorageFailed) or not isinstance(error, Exception):
        raise error  # the journal tells the next opening how far it has come
    scope.failed(call, error, attempt)
    settled = await _settle(call, said(error))
    if settled:
        return settled.result
    if effect.idempotent and not (effect.retry and effect.retry.comes_back(error, attempt)):
        _ask(call, "unknown_outcome", said(error))
    raise error


async def _settle(call: Call, cause: str, *, has_key: bool = True) -> _Answer | None:
    """Find out how an effect in doubt ended: an answer, or None if it may be done now. Otherwise a person is asked.
    `has_key`: it would be done under the same key again."""
    scope, effect = call.scope, _effect(call)
    if effect.verify is not None:
        began = time.monotonic()
        try:
            result = await verifying.verify(effect.verify, call)
        except NotDone as error:
            scope.failed(call, error, not_done=True)
            return None
        except Exception as error:
            cause += f"; verify failed: {said(error)}"
        else:
            return _Answer(await scope.completed(call, result, began, how="verified"))
    elif effect.idempotent and has_key:
        call.in_doubt = True
        return None
    _ask(call, "unknown_outcome", cause)
    return None


async def _recheck(call: Call, done: StepCompleted) -> None:
    scope, context = call.scope, call.scope.context
    rechecks, words = context.rechecks, f"{call.step.name}{call.identity()['call']}"
    place = (scope.agent.path, scope.key, call.key)
    is_asked = any((each.agent, each.scope, each.key) == place for each in context.moment.doubts.values())
    if (verify := _effect(call).verify) is None:
        if is_asked:
            _ask(call, "unknown_outcome", _CONTRADICTED)
        return
    if rechecks.seconds_left <= 0 and not is_asked:
        rechecks.left_over.append(words)
        return
    began = time.monotonic()
    try:
        seconds = rechecking.EACH if is_asked else min(rechecking.EACH, rechecks.seconds_left)
        await verifying.verify_within(verify, call, seconds)
    except NotDone as error:
        rechecks.put_back(place)
        _ask(call, "unknown_outcome", f"{_CONTRADICTED}: {error}")
    except Exception as error:
        rechecks.unknown.append(f"{words}: {said(error)}")
        if is_asked:
            rechecks.put_back(place)
            _ask(call, "unknown_outcome", f"{_CONTRADICTED}; now verify failed: {said(error)}")
        return
    finally:
        rechecks.seconds_left -= time.monotonic() - began
    rechecks.verified += 1
    if is_asked:  # this takes the question back
        await scope.keep(call, blobs.fetch(context.store, done), how="verified")


def _ask(
    call: Call, why: Literal["unknown_outcome", "unclaimed"], cause: str, others: tuple[Key, ...] = ()
) -> None:  # fmt: skip
    """Put the question on record and stop. A person answers it in approvals/."""
    call.scope.context.ask(call.identity(), why, cause, others)
    raise Suspended


def _effect(call: Call) -> Effect[Any]:
    assert isinstance(call.step, Effect)
    return call.step
