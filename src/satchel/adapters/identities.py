"""What identifies a call that a framework makes: its content, the same at every start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

__all__ = ["identity"]

_LEAVES = frozenset({str, int, float, bool, type(None)})


def identity(value: Any, package: str = "", unseen: frozenset[str] = frozenset()) -> Any:
    """`value` as JSON, to be an argument of a step: what a model or a tool gets, and nothing that is new at each start.

    Objects of dataclasses and of pydantic models become their fields, without those that are None, since a later
    version may have more. Those of classes of `package` have no fields with the names `unseen`, such as ids and times.
    A set has an order. A live object, such as a client, counts by its class. NaN and half a character stay: a record
    can hold `clean(identity(value))`.
    """
    kind: Any = type(value)
    if kind in _LEAVES:
        return value
    if kind is list or kind is tuple:
        return [each if type(each) in _LEAVES else identity(each, package, unseen) for each in value]
    names = _names(kind, package, unseen)
    if names is not None:
        found = {}
        for name in names:
            each = getattr(value, name, None)
            if each is not None:
                found[name] = each if type(each) in _LEAVES else identity(each, package, unseen)
        return found
    if issubclass(kind, BaseModel):
        extra, hidden = value.__pydantic_extra__ or {}, unseen if _is_of(kind, package) else ()
        state = {name: vars(value).get(name) for name in kind.model_fields} | extra  # no attribute: reading it may warn
        shown = {name: each for name, each in state.items() if each is not None and name not in hidden}
        return {name: identity(each, package, unseen) for name, each in shown.items()}
    if isinstance(value, Mapping):
        pairs = value.items()
        return {str(key): each if type(each) in _LEAVES else identity(each, package, unseen) for key, each in pairs}
    if isinstance(value, list | tuple | set | frozenset):
        items = [identity(each, package, unseen) for each in value]
        return items if isinstance(value, list | tuple) else sorted(items, key=repr)
    if isinstance(value, Iterator):  # pydantic would use it up
        return str(kind.__qualname__)
    return to_jsonable_python(value, bytes_mode="base64", fallback=lambda other: type(other).__qualname__)


@lru_cache(maxsize=1024)
def _names(kind: Any, package: str, unseen: frozenset[str]) -> tuple[str, ...] | None:
    """The fields of a dataclass that count. None for another class."""
    if not is_dataclass(kind):
        return None
    return tuple(each.name for each in fields(kind) if not (each.name in unseen and _is_of(kind, package)))


def _is_of(kind: Any, package: str) -> bool:
    return bool(package) and f"{kind.__module__}.".startswith(f"{package}.")
