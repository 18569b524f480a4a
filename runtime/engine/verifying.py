"""The identity of an effect outside: its idempotency key, and the result of its `verify`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial as bind
from hashlib import blake2b
from typing import Any, cast

from ..agent import Apart
from ..steps import declared, key_parameter, run_parameter
from .observing import verification
from .open_scope import Call

Verify = Callable[..., Any]


def idempotency_key(call: Call) -> str:
    """The same at every attempt, different for every call of every run, also of copies of one folder."""
    recorded = call.scope.agent.recorded.scopes.get(call.scope.key)
    if recorded is not None and (started := recorded.started.get(call.key)):
        return started.idempotency_key
    return _own_key(call)


def has_own_key(call: Call) -> bool:
    """Whether an effect that has begun would have the same key in this run. In a fork, one that the other run began
    would not."""
    return call.scope.context.moment.forked is None or idempotency_key(call) == _own_key(call)


def may_have_other_key(function: Verify, call: Call) -> bool:
    """Whether `function` may be given the wrong key of a finished effect. Its record does not say which run did it, nor
    whether a return has brought back the one that a person wanted to repeat."""
    takes_key = key_parameter(declared.hints_of(function), inspect.signature(function).parameters)
    return bool(takes_key) and (call.scope.context.moment.forked is not None or call.key in call.scope.recorded.again)


def _own_key(call: Call) -> str:
    scope, moment = call.scope, call.scope.context.moment
    identity = "\0".join((moment.run_nonce or moment.run_id, scope.key, *map(str, call.key)))
    if scope.agent.path:
        identity += f"\0{scope.agent.path}"
    if again := scope.recorded.again.get(call.key):  # a person wants to repeat it, so the receiver must do it again
        identity += f"\0again {again}"
    return blake2b(identity.encode(), digest_size=16).hexdigest()


async def verify(function: Verify, call: Call) -> Any:
    """The result of an effect. NotDone if it has not happened."""
    args, kwargs = _arguments(function, call)
    with verification(call), call.scope.context.stopping.drain.working(f"the verification of {call.words}"):
        if declared.is_async(function):
            return await cast(Awaitable[Any], function(*args, **kwargs))
        return await call.scope.work.in_thread(bind(function, *args, **kwargs))


async def verify_within(function: Verify, call: Call, seconds: float) -> None:
    """The same with a time limit. After it, neither the scope nor the process waits for the verification."""
    args, kwargs = _arguments(function, call)
    apart = Apart("satchel-verify")
    try:
        with verification(call), call.scope.context.stopping.drain.working(f"the verification of {call.words}"):
            async with asyncio.timeout(seconds) as limit:
                if declared.is_async(function):
                    await cast(Awaitable[Any], function(*args, **kwargs))
                else:
                    await apart.call(bind(function, *args, **kwargs))
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"no answer within {seconds:.0f} s") from None
        raise
    finally:
        apart.end()


def _arguments(function: Verify, call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, kwargs = call.step.shape.unbind(call.arguments, {})
    hints = declared.hints_of(function)
    if key := key_parameter(hints, inspect.signature(function).parameters):
        kwargs = {**kwargs, key: idempotency_key(call)}
    if of_run := run_parameter(hints):
        kwargs = {**kwargs, of_run: call.scope.agent.run}
    return args, kwargs
