"""Secrets of pydantic: it writes them as asterisks, so a model with one does not come back."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from .declared import pydantic_class


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
