"""What an unquoted word means: the core schema of YAML 1.2 (section 10.3.2), and no more."""

from __future__ import annotations

import math
import re

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_JSON = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_DIGITS = 4300  # more digits than this Python refuses to convert
_HEX_DIGITS = 3500  # and so many come to fewer than that


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
