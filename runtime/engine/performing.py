"""Run a step with its retries and fallback models."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, Protocol

from ...workspace.journal.records import StepFailed
from ..steps import ONCE, encode, is_mistake
from . import streaming
from .raised import is_kept
from .stopping import Suspended

_TURN = 0.2
_SLACK = 0.1
"""A call that was cancelled waits so many seconds longer than it did then, so that the same timeout comes first."""


class PerformingScope(streaming.StreamingScope, Protocol):
    """What this needs of the current scope (scope.py)."""

    @property
    def is_stopping(self) -> bool: ...
    async def keep(self, call: Any, data: bytes, *, soon: bool = False, **facts: Any) -> Any: ...
    async def completed(self, call: Any, result: Any, began: float, **facts: Any) -> Any: ...
    def failed(self, call: Any, error: BaseException, attempt: int = 1, **facts: Any) -> None: ...
    def sleep(self, seconds: float, reason: str) -> NoReturn: ...


class PerformedCall(streaming.StreamedCall, Protocol):
    """What this needs of a call (scope.py)."""

    model: str

    @property
    def scope(self) -> PerformingScope: ...
    def check_unchanged(self) -> None: ...


async def perform(call: PerformedCall, before: StepFailed | None) -> Any:
    """Run a step, and record its result or its last exception. `before`: the agent has cancelled the call in an earlier
    attempt of its scope."""
    scope, step = call.scope, call.step
    began = time.monotonic()
    try:
        if before is not None:
            await _wait(call, before.ms / 1000)
        result = await _tried(call)
    except asyncio.CancelledError as error:
        if not isinstance(error, Suspended) and not scope.is_stopping:
            ms = int((time.monotonic() - began) * 1000)
            scope.failed(call, error, final=True, cancelled=True, ms=ms)
        raise
    if isinstance(result, streaming.Accepted):
        return await scope.keep(call, encode(result.text, step.name), how="accepted")
    answer = await scope.completed(call, result, began)
    if step.shape.partial is not None:
        scope.context.tally.recovered += call.recovered
        path = streaming.path(call)
        scope.context.workspace.behind.do(path, lambda: scope.context.store.remove(path))
    return answer


async def _wait(call: PerformedCall, seconds: float) -> None:
    """Wait for the agent to cancel the call again, because the record shows what it did after that. A stop does not
    wait for this."""
    end = time.monotonic() + seconds + _SLACK
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, _TURN))
        call.scope.agent.check_going_on()


async def _tried(call: PerformedCall) -> Any:
    """Try with the retries of each model. If one of them has only asked for a long wait, the run sleeps until then."""
    scope, step = call.scope, call.step
    once: Callable[[Any], Awaitable[Any]] = _once if step.shape.partial is None else streaming.once
    models = ("", *step.fallback)
    waits: list[float] = []
    failure: Exception | None = None

    async def attempt(number: int) -> Any:
        if number > 1 or call.model:
            scope.agent.check_going_on()
            call.check_unchanged()
        return await once(call)

    def failed(error: BaseException, number: int) -> None:
        comes_back = step.retry is not None and step.retry.comes_back(error, number)
        is_last = is_mistake(error) or (call.model == models[-1] and not comes_back and not waits)
        scope.failed(call, error, number, final=is_last and is_kept(error))

    for model in models:
        call.model = model
        try:
            return await (step.retry or ONCE).run(attempt, failed)
        except Exception as error:
            if is_mistake(error):
                raise
            failure = error
            if step.retry and (wait := step.retry.too_long(error)) is not None:
                waits.append(wait)
    if waits:
        scope.sleep(min(waits), f"{step.name} was told to come back later")
    assert failure
    raise failure


async def _once(call: PerformedCall) -> Any:
    return await call.scope.invoke(call, {})
