"""Effects: never done twice unknowingly.

- claims: before an effect without a record starts, every recorded one of its name must have been called again
- intent: `step.started` is durable before the function runs
- doubt: one of which it is not known how it ended is verified, repeated under its key if idempotent, or asked about
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial as bind
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import Raw

from ..workspace import blobs
from ..workspace.errors import NotDone, UsageError
from ..workspace.moment import Answer, Kept
from ..workspace.record import NOTHING, Doubt, Key, StepStarted
from .calls import KEY, Effect

if TYPE_CHECKING:
    from .scope import Call

_TURNS = 20
_ARGUMENTS_KEPT = 4096
"""Bytes of arguments that the intent carries for a person who is asked about it; longer ones are left out."""


class Suspended(BaseException):
    """Unwinds the agent when a person is needed. Not an Exception, so that an agent's `except Exception` lets it by."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is known to have happened: the effect's result."""

    result: Any


async def perform(call: Call) -> Any:
    """Do an effect once, or find out that it was done."""
    scope = call.scope
    scope.claim(call.key)
    if call.key in scope.recorded.started:
        settled = await _settle(call, "a crash")
        return settled.result if settled else await _begin(call)
    answer = await _answer(call)
    if answer is not None:
        if answer.outcome == "done":
            result = blobs.fetch(scope.session.store, Kept(answer.result, answer.blob))
            try:
                return await scope.keep(call, result, how="resolved")
            except UsageError as error:
                _ask(call, "unclaimed", f"the answer can't be used: {error.why}")
        return await _begin(call)
    if unclaimed := await _unclaimed(call):
        _ask(call, "unclaimed", "", unclaimed)
    return await _begin(call)


async def _answer(call: Call) -> Answer | None:
    """A person's answer for this call. One that was given on another call waits for that to come; if it does not, its
    arguments have changed once more, and the answer is for whichever comes first."""
    scope, name = call.scope, call.key[0]
    answer = scope.answer(name)
    for _ in range(_TURNS):
        if answer is None or answer.key == call.key:
            break
        await asyncio.sleep(0)
        answer = scope.answer(name)
    scope.take_answer(name)
    return answer


async def _unclaimed(call: Call) -> tuple[Key, ...]:
    """Recorded calls that nobody has made again. Tasks beside this one may be about to: what is answered from the
    record does not wait, so a few turns of the loop bring them there."""
    for _ in range(_TURNS):
        unclaimed = call.scope.unclaimed(_effect(call).name)
        if not unclaimed:
            break
        await asyncio.sleep(0)
    return unclaimed


def ask_again(call: Call, error: UsageError) -> None:
    """A person's answer is not of the type the effect returns."""
    _ask(call, "unknown_outcome", f"the answer can't be used: {error.why}")


def idempotency_key(call: Call) -> str:
    """The same at every attempt, different for every call of every run."""
    identity = "\0".join((call.scope.session.moment.run_id, call.scope.key, *map(str, call.key)))
    return blake2b(identity.encode(), digest_size=16).hexdigest()


async def _begin(call: Call) -> Any:
    """Start it, as often as its retries allow."""
    effect = _effect(call)
    if effect.retry is None:
        return await _once(call, 1)
    return await effect.retry.run(bind(_once, call), lambda error, attempt: None)


async def _once(call: Call, attempt: int) -> Any:
    """One attempt. What it raises is what certainly has not happened; anything else ends in an answer or a doubt."""
    scope, effect = call.scope, _effect(call)
    key = idempotency_key(call)
    arguments = Raw(call.encoded) if len(call.encoded) <= _ARGUMENTS_KEPT else NOTHING
    scope.session.journal.add(StepStarted(**call.identity(), idempotency_key=key, arguments=arguments))
    try:
        await scope.durable()
        scope.session.check_going_on()  # another effect may have come into doubt while this one waited
    except BaseException as error:
        scope.failed(call, error, attempt, not_done=True)
        raise
    began = time.monotonic()
    try:
        result = await scope.invoke(call, {effect.shape.key: key} if effect.shape.key else {})
        return await scope.completed(call, result, began)
    except effect.not_done as error:
        scope.failed(call, error, attempt, not_done=True)
        raise
    except asyncio.CancelledError:
        # It may or may not have happened, and there is no time to find out: that is for the next attempt.
        scope.session.journal.flush()
        has_ended = call.key in scope.session.moment.scopes[scope.key].done
        if not (has_ended or scope.session.is_closing or scope.session.interruption.came):
            _note_doubt(call, "unknown_outcome", "it was cancelled", ())
        raise
    except Exception as error:
        scope.failed(call, error, attempt)
        settled = await _settle(call, f"{type(error).__name__}: {error}")
        if settled:
            return settled.result
        if effect.idempotent and not (effect.retry and effect.retry.goes_on(error, attempt)):
            _ask(call, "unknown_outcome", f"{type(error).__name__}: {error}")
        raise


async def _settle(call: Call, cause: str) -> _Answer | None:
    """Find out how an effect in doubt ended: an answer, or None if it may be done now. Otherwise a person is asked."""
    scope, effect = call.scope, _effect(call)
    if effect.verify is not None:
        began = time.monotonic()
        try:
            result = await _verify(call)
        except NotDone as error:
            scope.failed(call, error, not_done=True)
            return None
        except Exception as error:
            cause += f"; verify failed: {type(error).__name__}: {error}"
        else:
            return _Answer(await scope.completed(call, result, began, how="verified"))
    elif effect.idempotent:
        return None
    _ask(call, "unknown_outcome", cause)
    return None


async def _verify(call: Call) -> Any:
    effect = _effect(call)
    assert effect.verify is not None
    args, kwargs = effect.shape.unbind(call.arguments)
    if KEY in inspect.signature(effect.verify).parameters:
        kwargs = {**kwargs, KEY: idempotency_key(call)}
    if inspect.iscoroutinefunction(effect.verify):
        return await cast(Awaitable[Any], effect.verify(*args, **kwargs))
    return await call.scope.in_thread(bind(effect.verify, *args, **kwargs))


def _ask(
    call: Call, why: Literal["unknown_outcome", "unclaimed"], cause: str, others: tuple[Key, ...] = ()
) -> None:  # fmt: skip
    """Put the question on record and stop. A person answers it with `satchel resolve`."""
    _note_doubt(call, why, cause, others)
    raise Suspended


def _note_doubt(
    call: Call, why: Literal["unknown_outcome", "unclaimed"], cause: str, others: tuple[Key, ...]
) -> None:  # fmt: skip
    session = call.scope.session
    moment = session.moment
    of_this_effect = [d for d in moment.doubts.values() if d.scope == call.scope.key and d.step == call.key[0]]
    if not any(doubt.why == why == "unclaimed" or doubt.key == call.key for doubt in of_this_effect):
        session.journal.add(
            Doubt(**call.identity(), id=f"d{moment.doubts_asked + 1}", why=why, others=others, cause=cause)
        )
        session.journal.flush()
    session.suspend()


def _effect(call: Call) -> Effect[Any]:
    assert isinstance(call.step, Effect)
    return call.step


__all__ = ["Suspended", "idempotency_key", "perform"]
