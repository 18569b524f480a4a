"""Record the outcome of a call."""

from __future__ import annotations

import time
from typing import Any

from msgspec import Raw

from ...workspace.base import AgentError
from ...workspace.journal.records import StepCompleted, StepFailed, StepProgress, StepRetry
from ...workspace.state import result_blobs
from ..agent import brief, said
from ..steps import ANYTHING, encode, round_trip
from . import raised
from .open_scope import OpenCall


async def completed(call: OpenCall, result: Any, began: float, **facts: Any) -> Any:
    """Record a result; it is durable when this returns. Returns the value in the form of a recorded one."""
    what = f"the result of {call.step.name}"
    data = encode(result, what)
    round_trip.check_private(result, call.step.shape.codec, what)
    return await keep(call, data, ms=int((time.monotonic() - began) * 1000), **facts)


async def keep(call: OpenCall, data: bytes, *, soon: bool = False, **facts: Any) -> Any:
    """Record a result as it is. `soon`: it need not be durable when this returns, only before later records."""
    scope, context = call.scope, call.scope.context
    data = context.redactor.json(data)
    answer, data = call.step.shape.codec.returned(data)
    kept = result_blobs.keep(context.store, data, context.journal.generation)
    effect = call.step.is_effect
    context.journal.add(
        StepCompleted(
            **call.identity(),
            result=kept.result,
            blob=kept.blob,
            effect=effect,
            model=call.model,
            schema=context.schemas.name(call.step, keeps_unknown=scope.agent.keeps_unknown),
            **facts,
        )
    )
    # A streamed answer's file is removed once it is recorded, so that one is waited for.
    if (scope.agent.pipelined or soon) and not effect and not call.step.shape.is_streamed:
        context.pace.flush_soon(scope.agent.files)
        return answer
    await scope.durable()
    context.pace.step_is_done(scope.agent.files)
    return answer


def failed(call: OpenCall, error: BaseException, attempt: int = 1, *, final: bool = False, **facts: Any) -> None:
    """Record that a call has raised; `final`: for good. Durable with the next commit."""
    scope = call.scope
    failure = raised.kept(error) if final and isinstance(error, Exception) else brief(error)
    if facts.get("cancelled"):
        scope.numbering.cancel(call.key)
    # A handled failure before an error of the function's own would lead to that error again.
    inner = raised.calls_of(error, call.place) or [key for key in scope.recorded.failed if key[:2] in call.counts]
    scope.context.journal.add(
        StepFailed(
            **call.identity(),
            error=failure,
            attempt=attempt,
            effect=call.step.is_effect,
            final=final,
            calls=tuple(inner),
            schema=scope.context.schemas.name(call.step, keeps_unknown=scope.agent.keeps_unknown),
            **facts,
        )
    )
    scope.context.pace.flush_later()


def retries(call: OpenCall, error: BaseException, attempt: int, wait: float) -> None:
    """Record that a call is tried again, and tell who watches the run. Durable in a moment, for who looks at it."""
    context = call.scope.context
    wait = round(wait, 3)
    context.journal.add(StepRetry(**call.identity(), error=brief(error), attempt=attempt, wait=wait))
    context.pace.flush_later()
    call.scope.work.rest(call)
    if context.watch:
        context.watch.noticed("retry", f"{call.step.name}: asking again in {wait:.3g} s: {said(error)}")


async def progress(call: OpenCall, value: Any) -> None:
    """Record how far the function of a call has come. AgentError once it has returned."""
    if call.ended:
        late = f"run.progress() was called after {call.words} had returned"
        raise AgentError(late, remedy="await every task of a step before it returns")
    data = encode(value, "the progress")
    round_trip.check(ANYTHING, value, "the progress")  # this attempt has the value itself, the next what comes back
    scope = call.scope
    scope.context.journal.add(StepProgress(**call.identity(), value=Raw(data)))
    await scope.durable()
    scope.context.limits.look()
    scope.agent.check_going_on()
