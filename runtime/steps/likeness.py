"""What other libraries see of a step: its function, without the parameters that Satchel fills in.

A decorator of a framework reads the signature, the types and the flags of a function, and makes a tool of it. A step
answers as a function does. In a run every call of a step must be awaited, so a step is a coroutine function, also if
its own function is not `async def`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Container
from contextlib import suppress
from types import CodeType, SimpleNamespace
from typing import Any

from . import declared

Injected = Callable[[dict[str, Any], Container[str]], Container[str | None]]
"""Which parameters Satchel fills in, by the types and the names of all."""


def attribute(function: Callable[..., Any], name: str, injected: Injected) -> Any:
    """An attribute of functions, for a step of `function`."""
    if name not in ("__signature__", "__annotations__", "__annotate__"):
        found = getattr(declared.function_of(function), name)
        return _awaited(found) if isinstance(found, CodeType) and not declared.is_generator(function) else found
    signature, hints = inspect.signature(function), _hints(function)
    hidden = injected(hints, signature.parameters)
    if name == "__signature__":
        seen = [
            each.replace(annotation=hints.get(each.name, each.annotation))
            for each in signature.parameters.values()
            if each.name not in hidden
        ]
        returned = hints.get("return", signature.return_annotation)
        return signature.replace(parameters=seen, return_annotation=returned)
    annotations = {
        each: hint
        for each, hint in hints.items()
        if each == "return" or (each in signature.parameters and each not in hidden)
    }
    return annotations if name == "__annotations__" else lambda format: annotations


def _awaited(code: CodeType) -> CodeType:
    return code.replace(co_flags=code.co_flags | inspect.CO_COROUTINE)


def _hints(called: Callable[..., Any]) -> dict[str, Any]:
    """The types as they are annotated. One with a name that is not defined yet stays text."""
    function = declared.function_of(called)
    found = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        found[name] = annotation
        alone = SimpleNamespace(__annotations__={name: annotation})
        with suppress(NameError):
            names = getattr(inspect.unwrap(function), "__globals__", {})
            found[name] = typing.get_type_hints(alone, names, include_extras=True)[name]
    return found
