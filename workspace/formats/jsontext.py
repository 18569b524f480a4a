"""JSON in files of people and strangers: read strictly, with places and remedies; written to be readable. The decoders
of JSON to types, and the small files of Satchel's own that only inform."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.json import Decoder

from ...schemas import Problem, Where, dotted
from ..base import InvalidFile, NotSerializable

T = TypeVar("T")

DEPTH = 100
"""The maximum nesting of lists and mappings in a file."""

_one_at_a_time = threading.RLock()


def load(text: str, path: str) -> Any:
    """The value in `text`; `path` is only named in errors. InvalidFile for everything that another reader may
    understand differently.

    Refused besides what is not JSON: NaN and Infinity, a repeated key, numbers too large, half surrogate pairs, and
    more than DEPTH levels.
    """
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite)
        if _is_shallow(text, value):
            # A half surrogate pair may be a character or an escape; encoding the value finds both.
            text.encode()
            if "\\u" in text:
                json.dumps(value, ensure_ascii=False).encode()
            return value
    except (ValueError, RecursionError):
        pass
    # The fast parser reports no places. The slow one does, and runs only after an error.
    from . import json_diagnostics

    _, problems = json_diagnostics.scan(text, DEPTH)
    raise InvalidFile(path, problems or [Problem("the file", "what is not JSON", "JSON", "Correct it")])


def dump(value: Any) -> str:
    """`value` as a file: two spaces, keys in their order, text as it is, a line break at the end.

    NotSerializable for what JSON can't express: NaN, half surrogate pairs, Python's own types. Not checked: that keys
    are text; a number as a key becomes text.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, check_circular=False)
        text = msgspec.json.format(text, indent=2) + "\n"  # with indent=, json.dumps is a Python loop
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise NotSerializable("a value can't be written as JSON", why=str(error)) from None
    return text


def place_of(text: str) -> Callable[[Where], str]:
    """Names the line of a path in a JSON file, for `schemas.problems`: `line 4 (data.items[3])`.

    The file is scanned only at the first question. For a missing path it is the line of the value that contains it.
    """
    lines: dict[Where, int] = {}

    def place(path: Where) -> str:
        if not lines:
            from . import json_diagnostics  # slow to import, and only errors need it

            lines.update(json_diagnostics.scan(text, DEPTH)[0])
        nearest = path
        while nearest and nearest not in lines:
            nearest = nearest[:-1]
        return f"line {lines.get(nearest, 1)} ({dotted(path)})"

    return place


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a key is given twice")
    return mapping


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise ValueError("a number is too large")
    return number


def _is_shallow(text: str, value: Any) -> bool:
    if text.count("[") + text.count("{") <= DEPTH:
        return True
    level, depth = [value], 0
    while level:
        depth += 1
        inner = (v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list))
        level = [item for items in inner for item in items if isinstance(item, dict | list)]
    return depth <= DEPTH


def decoder(kind: Any, **options: Any) -> Decoder[Any]:
    """A decoder of JSON to `kind`; the options are msgspec's. TypeError if msgspec can't decode to it. All code that
    decodes to a struct gets its decoder here, when its module is imported.

    msgspec analyses a struct when it first needs it, and stores the result with the class. It does so in Python code,
    so another thread may run in between. That thread sees an incomplete result and crashes with a segmentation fault
    (msgspec 0.22). So decoders are made one at a time.
    """
    with _one_at_a_time:
        return Decoder(kind, **options)


def encode(value: Any) -> bytes:
    """A file of Satchel's own, indented for people. `value` is a struct."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def decode(data: bytes, decoder: Decoder[T]) -> T | None:
    """What such a file says. None if it is not valid: it only informs, so a broken one must not stop anything."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
