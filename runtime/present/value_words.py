"""Values in words: how long ago a time is, an amount of money, and JSON in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ...workspace.base import cut, moment_of, visible

_UNITS = (("days", 86_400), ("h", 3_600), ("min", 60))

_SHOWN = 60  # columns of a value in a line

_json = json.JSONEncoder(ensure_ascii=False, default=str).encode  # `json.dumps` would make one for each value


def ago(at: str | datetime) -> str:
    """How long ago a time is, in one unit: `now`, `4 s ago`, `3 min ago`, `2 h ago`, `5 days ago`, `in 3 min`. Empty if
    it is no time."""
    if (then := moment_of(at) if isinstance(at, str) else at) is None:
        return ""
    seconds = (datetime.now(UTC) - then).total_seconds()
    if abs(seconds) < 2:
        return "now"
    text = _one_unit(abs(seconds))
    return f"{text} ago" if seconds > 0 else f"in {text}"


def _one_unit(seconds: float) -> str:
    for unit, length in _UNITS:
        if seconds >= length * (2 if unit == "days" else 1):
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


def usd(amount: float) -> str:
    """`$0.042`, `$12.30`."""
    return f"${amount:.3f}" if 0 < amount < 1 else f"${amount:,.2f}"


def json_line(value: Any, width: int = _SHOWN) -> str:
    """JSON in one line of at most `width` columns, safe to print. The cost does not depend on the size of the value."""
    return cut(visible("".join(_written(value, width))), width)


def _written(value: Any, width: int) -> Iterator[str]:
    """The beginning of the JSON of a value, with at least `width` characters if it has so many."""
    left = width + 1
    if isinstance(value, dict | list):
        is_list = isinstance(value, list)
        yield "[" if is_list else "{"
        parts = (("", each) for each in value) if isinstance(value, list) else value.items()
        for number, (key, each) in enumerate(parts):
            lead = ", " if number else ""
            lead += "" if is_list else f"{_json(key[:left])}: "
            inner = "".join(_written(each, left)) if left > 0 else ""
            yield lead + inner
            left -= len(lead) + len(inner)
            if left <= 0:
                return
        yield "]" if is_list else "}"
    else:
        yield _json(value[:left] if isinstance(value, str) else value)
