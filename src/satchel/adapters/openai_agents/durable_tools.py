"""`durable_tool`: each call of a tool is a step or an effect of the run.

The SDK catches what a tool raises, so the step is inside that catch. A stop of the run passes it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, get_origin, get_type_hints
from uuid import uuid4
from weakref import WeakKeyDictionary

import agents

from satchel import NotDone, Retry, Run, clean, step
from satchel import effect as as_effect
from satchel.errors import SatchelError, UsageError


def durable_tool(
    function: Callable[..., Any] | None = None,
    *,
    effect: bool = False,
    verify: Callable[..., Any] | None = None,
    not_done: tuple[type[BaseException], ...] = (),
    idempotent: bool = False,
    retry: Retry | None = None,
    **options: Any,
) -> Any:
    """`function_tool` of the SDK, with its `options`, for a tool whose calls are steps of a run.

    With `effect=True` they are effects: `verify`, `not_done` and `idempotent` are those of `satchel.effect`, and so is
    a parameter of the type `Key`. `verify` gets the arguments of the tool without the context, and returns its result.
    """
    if function is None:
        return partial(
            durable_tool, effect=effect, verify=verify, not_done=not_done, idempotent=idempotent, retry=retry, **options
        )
    if not effect and (verify or not_done or idempotent):
        what = f"the tool {function.__name__} is a step, which takes no `verify`, `not_done` or `idempotent`"
        raise UsageError(what, remedy="write `effect=True`, if it changes the world outside")
    name = options.get("name_override") or function.__name__
    decorate: Any = step(name=name, retry=retry)
    if effect:
        decorate = as_effect(name=name, retry=retry, verify=verify, not_done=not_done, idempotent=idempotent)
    if told := options.get("failure_error_function", agents.default_tool_error_function):
        options["failure_error_function"] = _without_stops(told)
    return agents.function_tool(**options)(_called(decorate(function)))


def _called(unit: Any) -> Callable[..., Any]:
    """What the SDK calls. `unit` is the step of the tool; its context is no argument of it, as `self` of a method."""
    hints, names = get_type_hints(unit.function, include_extras=True), [*inspect.signature(unit).parameters]
    first = hints.get(names[0]) if names else None
    kind = get_origin(first) or first
    has_context = isinstance(kind, type) and issubclass(kind, agents.RunContextWrapper)
    keys = inspect.signature(unit.function).parameters.keys() - {*names}
    is_async = inspect.iscoroutinefunction(unit.function)

    @wraps(unit)
    async def called(*args: Any, **kwargs: Any) -> Any:
        bound, given = (unit.__get__(args[0]), args[1:]) if has_context else (unit, args)
        if clean(known := [given, kwargs]) is not known:
            raise ValueError("NaN, half a character or more than 64 levels can't be recorded. Call it without them")
        outer = _current.get()
        _current.set(asyncio.current_task())
        if run := Run.current():
            return await _next_to_others(run, outer, bound(*given, **kwargs))
        if keys:  # what Satchel fills in may come first
            more = inspect.signature(bound).bind(*given, **kwargs).arguments
            given, kwargs = (), {**more, **dict.fromkeys(keys, uuid4().hex)}
        return await (bound(*given, **kwargs) if is_async else asyncio.to_thread(bound, *given, **kwargs))

    return called


_current: ContextVar[Any] = ContextVar("_current", default=None)
"""The task that calls a tool."""

_running: WeakKeyDictionary[Run[Any], set[Any]] = WeakKeyDictionary()
"""The tasks of tools that have no other tools in them."""

_TURN = 0.01


async def _next_to_others(run: Run[Any], outer: Any, result: Any) -> Any:
    """The result of a tool. If it fails or is told to stop, it waits for the tools that run first.

    The SDK cancels the others when one fails, and takes a stop for a failure. Then effects in their middle would be in
    doubt.
    """
    others, task = _running.setdefault(run, set()), asyncio.current_task()
    others.discard(outer)
    others.add(task)
    try:
        return await result
    except (Exception, asyncio.CancelledError):
        others.discard(task)
        while task and not task.cancelling():
            await asyncio.sleep(_TURN)  # those that the SDK has made with it begin, too
            if not others:
                break
        raise
    finally:
        others.discard(task)


def _without_stops(told: Callable[..., Any]) -> Callable[..., Any]:
    """What the model is told of a failed tool: not that the run stops, and not that its program is wrong."""

    async def tell(context: agents.RunContextWrapper[Any], error: Exception) -> Any:
        stop = getattr(error, "cancelled_error", None)  # the SDK makes an exception of a cancellation
        if stop and Run.current():
            raise stop
        if isinstance(error, SatchelError) and not isinstance(error, NotDone):
            raise error
        text = told(context, error)
        return await text if inspect.isawaitable(text) else text

    return tell
