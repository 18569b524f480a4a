"""Read the YAML that most files consist of, a line at a time: keys with words, numbers, quoted texts and short lists,
and comments in lines of their own.

PyYAML takes fifteen times as long, and a while to import, and a look at thousands of runs reads as many files of this
kind. Everything else is left to `yaml_reader`, which also explains mistakes.
"""

from __future__ import annotations

import math
import re
from typing import Any

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_JSON = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_DIGITS = 4300  # more digits than this Python refuses to convert
_HEX_DIGITS = 3500  # and so many come to fewer than that

_LINE = re.compile(
    r"""
    (?:[ ]*(?:[#].*)?)                                      # nothing, or a comment
    |
    (?P<indent>[ ]*) (?P<key>[A-Za-z_][A-Za-z0-9_-]{0,99}) :
    (?:[ ]+(?:
        (?P<word>[A-Za-z0-9_./~] (?:[^ :#] | :(?=[^ ]) | (?<=[^ ])[#] | [ ]+(?=[^ #]))*)
        | "(?P<text>[^"\\]*)" | '(?P<raw>[^']*)'
        | \[(?P<list>(?:[A-Za-z0-9_./][A-Za-z0-9_./-]*(?:,[ ][A-Za-z0-9_./][A-Za-z0-9_./-]*)*)?)\]
    ))? [ ]*
    """,
    re.VERBOSE,
)

_DEPTH = 10


def mapping(text: str) -> dict[str, Any] | None:
    """The value of a whole file. None if it is not of this kind, or may have a mistake."""
    written = text.split("\n")
    if not all(line.isprintable() for line in written):  # no tab, no other line end, nothing invisible
        return None
    top: dict[str, Any] = {}
    open_at = [(0, top)]  # the mappings that go on, with their columns
    empty = ""  # the last key, if it had no value
    for line in written:
        if (found := _LINE.fullmatch(line)) is None:
            return None
        indent, key, word, quoted, raw, items = found.groups()
        if key is None:
            continue
        column, into = open_at[-1]
        if len(indent) > column and empty and len(open_at) < _DEPTH:
            column, into[empty] = len(indent), {}
            open_at.append((column, into := into[empty]))
        while len(indent) < column:
            open_at.pop()
            column, into = open_at[-1]
        if len(indent) != column or key in into or not isinstance(resolve(key), str):
            return None
        try:
            if items is not None:
                into[key] = [resolve(each) for each in items.split(", ")] if items else []
            else:
                into[key] = quoted if quoted is not None else raw if raw is not None else resolve(word or "")
        except ValueError:
            return None
        empty = "" if word or quoted is not None or raw is not None or items is not None else key
    return top or None


def resolve(word: str) -> str | int | float | bool | None:
    """The value of a plain scalar. ValueError, with a phrase for it, if it is a number that JSON can't hold."""
    if word in _NULL:
        return None
    if word in _BOOL:
        return _BOOL[word]
    if _DECIMAL.fullmatch(word):
        if len(word) > _DIGITS:
            raise ValueError("a number of more than 4300 digits")
        return int(word)
    if _OCTAL_OR_HEX.fullmatch(word):
        if len(word) > _HEX_DIGITS:
            raise ValueError("a number of more than 3500 digits")
        return int(word, 0)
    if _FLOAT.fullmatch(word):
        if math.isinf(number := float(word)):
            raise ValueError(f"the number {word[:40]}, which is too large")
        return number
    if _NOT_JSON.fullmatch(word):
        raise ValueError(f"{word}, which is not a number in JSON")
    return word
