"""JSON values of any size on a page: one level at a time, each value in a line. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec import Struct

from ...workspace.base import UsageError
from ...workspace.state import json_patch

MOST = 200
"""Values of one level on a page."""

_WIDTH = 160
_TEXT = 20_000


class Value(Struct, frozen=True):
    """A value inside another one. `path` is its JSON pointer; `size` the number of values in it, None for a text or a
    number."""

    key: str
    path: str
    shown: str
    size: int | None


class Level(Struct, frozen=True):
    """The values of one level. `text` is the whole value if it has no parts. `above` are the pointers that lead to
    it, with their keys."""

    values: list[Value]
    total: int
    begin: int
    text: str
    above: list[tuple[str, str]]


def level(data: Any, pointer: str, begin: int = 0) -> Level:
    """What is at a JSON pointer. UsageError if there is nothing."""
    at, above = data, [("", "")]
    for part in json_patch.split(pointer):
        at = _inside(at, part, pointer)
        above.append((f"{above[-1][0]}/{json_patch.escape(part)}", part))
    found = [_value(key, each, pointer) for key, each in islice(_parts(at), begin, begin + MOST)]
    total = len(at) if isinstance(at, dict | list) else 0
    text = "" if isinstance(at, dict | list) else at if isinstance(at, str) else json.dumps(at, ensure_ascii=False)
    return Level(found, total, begin, text[:_TEXT], above[1:])


def _inside(value: Any, part: str, pointer: str) -> Any:
    if isinstance(value, dict) and part in value:
        return value[part]
    if isinstance(value, list) and part.isascii() and part.isdecimal() and int(part[:9]) < len(value):
        return value[int(part[:9])]
    raise UsageError(f"the state has no value {pointer}", remedy="look at the whole state")


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from ((str(index), each) for index, each in enumerate(value))


def _value(key: str, value: Any, above: str) -> Value:
    size = len(value) if isinstance(value, dict | list) else None
    return Value(key, f"{above}/{json_patch.escape(key)}", preview(value, _WIDTH), size)


def preview(value: Any, width: int = _WIDTH) -> str:
    """JSON in one line of at most `width` characters. The cost does not depend on the size of the value."""
    text = "".join(_written(value, width))
    return text if len(text) <= width else text[: width - 1] + "…"


def _written(value: Any, width: int) -> Iterator[str]:
    """The beginning of the JSON of a value, with at least `width` characters if it has so many."""
    left = width + 1
    if isinstance(value, dict | list):
        is_list = isinstance(value, list)
        yield "[" if is_list else "{"
        for number, (key, each) in enumerate(_parts(value)):
            lead = ", " if number else ""
            lead += "" if is_list else json.dumps(key[:left], ensure_ascii=False) + ": "
            inner = "".join(_written(each, left)) if left > 0 else ""
            yield lead + inner
            left -= len(lead) + len(inner)
            if left <= 0:
                return
        yield "]" if is_list else "}"
    else:
        short = value[: width + 1] if isinstance(value, str) else value
        yield json.dumps(short, ensure_ascii=False)
