"""Run the function of a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial as bind
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...workspace.secrets import scrub
from ..steps import MODEL
from .open_scope import Call, current_call

if TYPE_CHECKING:
    from ..steps import Partial


async def invoke(call: Call, injected: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Run the function of a call, in a thread if it is not async. `injected`: the arguments that Satchel fills in."""
    scope, step = call.scope, call.step
    call.counts, call.made, call.ended = {}, None, False
    drain = scope.context.stopping.drain
    try:
        with (drain.held if step.is_effect else drain.working)(call):  # never between an effect's two halves
            result = await _invoke(call, injected)
    except (Exception, asyncio.CancelledError) as error:
        if redactor := scope.context.redactor:  # so that the agent gets what a re-entry gets
            scrub(error, redactor)
        if call.was_stopped:
            raise scope.agent.stopped() from error
        raise
    if call.was_stopped:
        raise scope.agent.stopped()  # its return value is incomplete, because calls were refused
    return result


async def _invoke(call: Call, injected: Mapping[str, Any]) -> Any:
    scope, step = call.scope, call.step
    token = current_call.set(call)
    try:
        arguments = {**call.arguments, MODEL: call.model} if call.model else call.arguments
        if step.shape.run:
            injected = {**injected, step.shape.run: scope.agent.run}
        args, kwargs = step.shape.unbind(arguments, injected)
        if step.is_async:
            result = await step.function(*args, **kwargs)
        elif step.is_generator and call.out is not None:
            result = await _joined(step.function(*args, **kwargs), call.out)
        else:
            result = await scope.work.in_thread(bind(step.function, *args, **kwargs))
        if call.made is not None and step.is_effect:
            scope.work.made.take(call.made)  # it has happened, which is more important
        elif call.made is not None:
            await call.made.settle()
            call.made.check(step.name, scope.context.store.url)
        return result
    finally:
        call.ended = True
        current_call.reset(token)


async def _joined(parts: AsyncGenerator[str, None], out: Partial) -> str:
    """The whole text of a generator, after what an earlier attempt has left in `out`."""
    async with aclosing(parts):
        async for part in parts:
            await out.write(part)
    return out.text
