"""What a type is made of, and which types are of pydantic, if the program uses it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import msgspec


def pydantic_class(name: str) -> Any:
    """A class of pydantic, or an empty tuple if the program has not imported pydantic: then it has no such values."""
    module = sys.modules.get("pydantic")
    return getattr(module, name) if module else ()


def sealed_class() -> Any:
    """The same for the class `Sealed`."""
    module = sys.modules.get(f"{__package__}.sealed")
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
