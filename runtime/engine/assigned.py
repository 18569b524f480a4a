"""Which containers of a state were assigned: two scopes may both change what is inside a container, but only one of
them may replace it by another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from ...workspace.journal.records import Patch
from ...workspace.state import json_patch

_CONTAINERS = (dict, list, tuple, set, frozenset)
_LEAVES = frozenset((str, int, float, bool, type(None)))


class _Seen(Struct):
    """A container, and those in it by their keys in JSON. Elements of lists are left out: a list is compared as a
    whole."""

    value: Any
    inside: dict[str, _Seen]


class Containers:
    """The containers of a value as it is now. They are kept alive, so that no new one gets the place of an old one in
    memory."""

    def __init__(self, value: Any):
        self._root = _seen(value)

    def places(self, value: Any, patch: Patch) -> Iterator[str]:
        """The places that `patch` changes in the `value` as it has become. A change in a container that has replaced
        another one changes the place of that container."""
        for change in patch:
            yield self._place(value, str(change["path"]))

    def _place(self, value: Any, path: str) -> str:
        seen, place = self._root, ""
        for part in json_patch.split(path)[:-1]:
            if (inside := seen.inside.get(part)) is None:
                break  # of a list, or new
            seen, place, value = inside, f"{place}/{json_patch.escape(part)}", _member(value, part)
            if value is not seen.value:
                return place
        return path


def _seen(value: Any) -> _Seen:
    return _Seen(value, {key: _seen(each) for key, each in _members(value) if _is_container(each)})


def _is_container(value: Any) -> bool:
    return type(value) not in _LEAVES and (isinstance(value, _CONTAINERS) or bool(_fields_of(value)))


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield key if type(key) is str else _as_text(key), each
    elif not isinstance(value, _CONTAINERS):
        for key, name in _fields_of(value).items():
            yield key, getattr(value, name, None)


def _member(value: Any, key: str) -> Any:
    if isinstance(value, dict) and key in value:
        return value[key]
    return next((each for known, each in _members(value) if known == key), None)


def _as_text(key: Any) -> str:
    text: str = next(iter(msgspec.to_builtins({key: None}, str_keys=True)))
    return text


def _fields_of(value: object) -> dict[str, str]:
    """The attributes of an object by their keys in JSON; none for other values."""
    kind: Any = type(value)
    return _fields(kind)


@cache
def _fields(kind: Any) -> dict[str, str]:
    if issubclass(kind, msgspec.Struct):
        return dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    for attribute in ("__pydantic_fields__", "__dataclass_fields__", "__attrs_attrs__"):
        if (found := getattr(kind, attribute, None)) is not None:
            names = [getattr(each, "name", each) for each in found]
            return dict(zip(names, names, strict=True))
    return {}
