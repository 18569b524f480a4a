"""What a program declares: a callable (a function, bound method, `functools.partial`, or object with `__call__`), and
the types of its parameters and result.
"""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, TypeGuard

import msgspec


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


def pydantic_class(name: str) -> Any:
    """A class of pydantic, or an empty tuple if the program has not imported pydantic: then it has no such values."""
    module = sys.modules.get("pydantic")
    return getattr(module, name) if module else ()


def sealed_class() -> Any:
    """The same for the class `Sealed`."""
    module = sys.modules.get(f"{__package__}.texts")
    return module.Sealed if module else ()


def parts_of(kind: Any) -> Iterator[Any]:
    """All that msgspec knows of a type and of the types in it. Nothing of a type that only pydantic knows."""
    from msgspec import inspect

    try:
        waiting: list[Any] = [inspect.type_info(kind)]
    except TypeError:
        return
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, msgspec.Struct):
            waiting += [getattr(node, name) for name in node.__struct_fields__]
        elif isinstance(node, tuple):
            waiting += node


@functools.cache
def masked(model: Any) -> str:
    """The class of a secret in a pydantic model, which pydantic writes as asterisks, so that the model does not come
    back. Empty without one."""
    waiting, seen = [model], set[int]()
    while waiting:
        kind = waiting.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        waiting += typing.get_args(kind)
        if kind in (pydantic_class("SecretStr"), pydantic_class("SecretBytes")):
            return str(kind.__name__)
        if isinstance(kind, type) and issubclass(kind, pydantic_class("BaseModel")):
            waiting += _written_by_pydantic(kind)
    return ""


def _written_by_pydantic(model: Any) -> Iterator[Any]:
    """The types of the fields that the model does not write in a way of its own."""
    own = model.__pydantic_decorators__
    by_code = {name for each in own.field_serializers.values() for name in each.info.fields}
    for name, field in model.model_fields.items():
        is_own = name in by_code or any(type(each).__name__.endswith("Serializer") for each in field.metadata)
        if not (is_own or field.exclude or own.model_serializers):
            yield field.annotation
