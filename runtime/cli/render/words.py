"""How facts are put for people. What `control` puts in words, too, is its own and handed on here."""

from __future__ import annotations

from collections.abc import Sequence

from ....workspace.base import UNSAFE, visible
from ...control import counted, cut, duration, one_line, since, size

__all__ = ["counted", "cut", "duration", "listed", "one_line", "since", "size", "utc", "visible", "visible_json"]


def visible_json(text: str) -> str:
    """The same of JSON, which still says the same: these characters only come inside its strings, as do escapes."""
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text.replace("\r", " "))  # a line end between values


def utc(at: str) -> str:
    """A time of the journal, which is UTC, in columns that say so: `2026-11-21 23:10:04Z`."""
    return f"{at[:10]} {at[11:19]}Z" if at else ""


def listed(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""
