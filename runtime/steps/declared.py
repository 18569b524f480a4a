"""The declaration of a callable: a function, a bound method, a `functools.partial`, or an object with `__call__`."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeGuard


def function_of(called: Callable[..., Any]) -> Callable[..., Any]:
    """The function that declares what `called` takes and returns."""
    called = _whole(called)
    if not _is_object(called):
        return called
    wrapped = getattr(called, "__wrapped__", None)
    return type(called).__call__ if wrapped is None else function_of(wrapped)


def is_async(called: Callable[..., Any]) -> bool:
    """Whether it is `async def`, so that its result must be awaited."""
    called = _whole(called)
    return inspect.iscoroutinefunction(type(called).__call__ if _is_object(called) else called)


def is_generator(called: Callable[..., Any]) -> bool:
    """Whether it is an `async def` that yields."""
    called = _whole(called)
    return inspect.isasyncgenfunction(type(called).__call__ if _is_object(called) else called)


def is_method(called: Callable[..., Any] | None) -> TypeGuard[FunctionType]:
    """Whether it is the function of a method: it is defined in a class, and its first parameter is `self` or `cls`."""
    if not isinstance(called, FunctionType) or not called.__code__.co_argcount:
        return False
    of = called.__qualname__.rpartition(".")[0]
    return bool(of) and not of.endswith("<locals>") and called.__code__.co_varnames[0] in ("self", "cls")


def hints_of(called: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters that a call must still give, and of the result."""
    hints = typing.get_type_hints(function_of(called))
    if isinstance(called, functools.partial):
        left = inspect.signature(called).parameters
        hints = {name: hint for name, hint in hints.items() if name == "return" or name in left}
    return hints


def _whole(called: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(called, functools.partial):
        called = called.func
    return called


def _is_object(called: Callable[..., Any]) -> bool:
    return not (inspect.isroutine(called) or inspect.isclass(called))
