"""`satchel.clean`: text and JSON from outside as something that can be recorded."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

from ...workspace.base import NotSerializable
from .codec import DEPTH, check_depth, encode_of_any_depth

T = TypeVar("T")

_NESTED = 64
"""Levels of lists and dicts that stay. A record can hold more, so that the value can be put into others."""

_AS_TEXT = 200
"""Levels below these that become text. The number does not depend on how much room the stack has."""

_TOO_DEEP = "…"


def clean(value: T) -> T:
    """`value` without what no record can hold, for what comes from outside: a model's answer, the arguments that it
    wrote, a tool's text. Takes text and JSON values; returns the same object if nothing had to be changed.

    Half of a surrogate pair becomes U+FFFD, and two halves in a row their character. NaN and infinity (as `1e400` gives
    it) become None, as in JSON. Lists and dicts that are nested more than 64 deep become their JSON, as text, or `…` if
    it has more than 200 levels. So does what contains itself. If two keys become the same, the later one counts. Other
    values, such as dates and dataclasses, stay as they are.
    """
    try:
        check_depth(encode_of_any_depth(value, ""), "", around=DEPTH - _NESTED)
    except NotSerializable:
        return _clean(value, ())  # type: ignore[no-any-return]
    return value


def _clean(value: Any, above: tuple[int, ...]) -> Any:
    """`above`: the ids of the lists and dicts that `value` is in."""
    inside = (*above, id(value))
    match value:
        case str():
            return _text(value)
        case float():
            return value if math.isfinite(value) else None
        case dict() | list() | tuple() if id(value) in above:
            return _TOO_DEEP
        case dict() | list() | tuple() if len(above) == _NESTED:
            return _as_json(value)
        case dict():
            pairs = value.items()
            return {_text(key) if isinstance(key, str) else key: _clean(each, inside) for key, each in pairs}
        case list():
            return [_clean(each, inside) for each in value]
        case tuple():
            return tuple(_clean(each, inside) for each in value)
    return value


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _as_json(value: Any) -> str:
    level = [value]
    for _ in range(_AS_TEXT):
        level = [*{id(inner): inner for each in level for inner in _inside(each)}.values()]
        if not level:
            with suppress(TypeError):  # a key that is no text
                return _text(json.dumps(value, ensure_ascii=False, default=repr))
    return _TOO_DEEP


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
