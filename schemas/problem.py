"""One problem of a file, in the four parts that a person needs to correct it; and the words that tell it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Where = tuple[str | int, ...]
"""The path to a value inside a file: keys and list positions from the top."""

_PLAIN_KEY = re.compile(r"[^\s.\[\]\"'`]+")
_SHOWN = 40  # characters of a text that are quoted in a message


class Problem(NamedTuple):
    """Where it is, what is there, what should be there, and what to do. `str()` is one line for people.

    `found` and `expected` are phrases that fit into the sentence, `remedy` is a sentence without its full stop.
    """

    place: str
    found: str
    expected: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: found {self.found}, expected {self.expected}" + (
            f". {self.remedy}" if self.remedy else ""
        )


def dotted(path: Sequence[str | int]) -> str:
    """`data.items[3]`, as people write paths; the empty path is "the top level"."""
    said = ""
    for part in path:
        if isinstance(part, int):
            said += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            said += f".{part}" if said else part
        else:
            said += f"[{short(part)}]"
    return said or "the top level"


def short(value: Any) -> str:
    """A JSON value in a few words, never more than a line."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return "true" if value else "false"
        case str():
            shown = value if len(value) <= _SHOWN else value[: _SHOWN - 3] + "..."
            return '"' + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown) + '"'
        case int() if abs(value) >= 10**_SHOWN:
            return "a very large number"  # Python refuses to print an integer of more than 4,300 digits
        case int() | float():
            return str(value)
        case Mapping():
            return f"a mapping of {_counted(len(value), 'key')}" if value else "an empty mapping"
        case list() | tuple():
            return f"a list of {_counted(len(value), 'item')}" if value else "an empty list"
        case _:
            return f"a Python {type(value).__name__}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` is probably a typo of, or None."""
    import difflib  # for mistakes only

    by_fold = {_fold(name): name for name in known}
    close = difflib.get_close_matches(_fold(word), by_fold, n=1, cutoff=0.7)
    return by_fold[close[0]] if close else None


def _fold(word: str) -> str:
    return word.casefold().replace("-", "_").replace(" ", "_")[:80]  # cut: the comparison is quadratic


def ended(pattern: str) -> str:
    """A regular expression as in the standard: `$` is the end of the text. In Python it is also before a last
    newline."""
    return pattern[:-1] + r"\Z" if pattern.endswith("$") and not pattern.endswith("\\$") else pattern
