"""Run a step with its retries and fallback models."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial as bind
from typing import Any

from ..steps import ONCE, encode, is_mistake
from . import recording, revoked, streaming
from .invoking import invoke
from .open_scope import Call
from .raised import is_kept
from .stopping import Suspended

_TURN = 0.2
_SLACK = 0.1
"""A call that was cancelled waits so many seconds longer than it did then, so that the same timeout comes first."""


async def perform(call: Call) -> Any:
    """Run a step, and record its result or its last exception."""
    scope, step = call.scope, call.step
    before = scope.recorded.failed.get(call.key)  # the agent has cancelled it in an earlier attempt at its scope
    began = time.monotonic()
    try:
        if before is not None:
            await _wait(call, before.ms / 1000)
        revoked.check(call)
        result = await _tried(call)
    except asyncio.CancelledError as error:
        if not isinstance(error, Suspended) and not scope.is_stopping:
            ms = int((time.monotonic() - began) * 1000)
            recording.failed(call, error, final=True, cancelled=True, ms=ms)
        raise
    if isinstance(result, streaming.Accepted):
        return await recording.keep(call, encode(result.text, step.name), how="accepted")
    how = "interrupted" if call.interrupted else "restarted" if call.restarted else "returned"
    answer = await recording.completed(call, result, began, how=how)
    if step.shape.is_streamed:
        scope.context.tally.recovered += call.recovered
        path = streaming.path(call)
        scope.context.workspace.behind.do(path, lambda: scope.context.store.remove(path))
    return answer


async def _wait(call: Call, seconds: float) -> None:
    """Wait for the agent to cancel the call again, because the record shows what it did after that. A stop does not
    wait for this."""
    end = time.monotonic() + seconds + _SLACK
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, _TURN))
        call.scope.check_going_on()


async def _tried(call: Call) -> Any:
    """Try with the retries of each model. If one of them has only asked for a long wait, the run sleeps until then."""
    scope, step = call.scope, call.step
    once: Callable[[Any], Awaitable[Any]] = streaming.once if step.shape.is_streamed else invoke
    models = ("", *step.fallback)
    waits: list[float] = []
    failure: Exception | None = None

    async def attempt(number: int) -> Any:
        scope.work.resting.discard(call)
        if number > 1 or call.model:
            scope.check_going_on()
            call.check_unchanged()
            revoked.check(call)
        return await once(call)

    def failed(error: BaseException, number: int) -> None:
        comes_back = step.retry is not None and step.retry.comes_back(error, number)
        is_last = is_mistake(error) or (call.model == models[-1] and not comes_back and not waits)
        recording.failed(call, error, number, final=is_last and is_kept(error))

    for model in models:
        call.model = model
        try:
            return await (step.retry or ONCE).run(attempt, failed, bind(recording.retries, call))
        except Exception as error:
            if is_mistake(error):
                raise
            failure = error
            if step.retry and (wait := step.retry.too_long(error)) is not None:
                waits.append(wait)
    if waits:
        scope.context.stopping.sleep(min(waits), f"{step.name} was told to try again later")
    assert failure
    raise failure
