"""What a type is made of, and which types are of pydantic, if the program uses it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import msgspec


def pydantic_class(name: str) -> Any:
    """A class of pydantic, or an empty tuple if the program has not imported pydantic: then it has no such values."""
    module = sys.modules.get("pydantic")
    return getattr(module, name) if module else ()


def sealed_class() -> Any:
    """The same for the class `Sealed`."""
    module = sys.modules.get(f"{__package__}.sealed")
    return module.Sealed if module else ()


@cache
def masked(model: Any) -> str:
    """The class of a secret in a pydantic model, which pydantic writes as asterisks. Empty without one."""
    waiting, seen = [model], set[int]()
    while waiting:
        kind = waiting.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        waiting += get_args(kind)
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
