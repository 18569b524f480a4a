"""Values in words and tones: how long ago a time is, an amount of money, JSON in one line; and the tone of what has no
words of its own. The page has a class for each tone; a terminal has a colour. A state has its tone in the table of
statuses, and a record in its words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ...workspace.base import cut, moment_of, visible
from ...workspace.state import Tone, tone

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


_COLOURS: dict[Tone, str] = {"active": "cyan", "good": "green", "bad": "red", "ask": "yellow", "hold": "magenta"}


def colour(tone: Tone | None) -> str | None:
    """The colour of a tone in a terminal."""
    return _COLOURS.get(tone) if tone else None


def state_colour(state: str) -> str | None:
    """The colour of the state of a run in a terminal."""
    return colour(tone(state))


REMARKS: dict[str, Tone] = {"found": "active", "edited": "hold", "done": "good", "wanted": "ask"}
"""For the remarks of an opening."""

CHANGES: dict[str, tuple[str, Tone]] = {"added": ("+", "good"), "removed": ("-", "bad"), "changed": ("~", "ask")}
"""The sign and the tone of a difference."""

CALLS: dict[str, Tone] = {"failed": "bad", "retrying": "ask", "in_doubt": "ask", "asked": "ask"}
"""For a call, by its state."""

SERVE_EVENTS: dict[str, Tone] = {
    "started": "active",
    "listening": "active",
    "crashed": "bad",
    "refused": "bad",
    "storage": "bad",
    "warned": "ask",
    "late": "ask",
}
"""For the events of `satchel serve`. The others are states of a run."""

MARKS: dict[str, tuple[str, Tone | None]] = {
    "open": ("[ ]", None),
    "begun": ("[/]", "ask"),
    "done": ("[x]", "good"),
    "cancelled": ("[-]", "rest"),
}
"""The mark of an item of a plan, as in todo.md."""
