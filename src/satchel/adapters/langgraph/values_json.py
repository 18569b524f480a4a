"""Values as a serializer of LangGraph has made them, and as JSON that people read. Pure: no type in them is looked up.

A list in MessagePack that has grown is recognised by how it began, so that only what was added needs to be kept.
"""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from hashlib import blake2b
from typing import Any, NamedTuple

import ormsgpack

from satchel import clean

Shown = dict[str, Any]


class Beginning(NamedTuple):
    """A list in MessagePack, of which a later one is the continuation if it begins so."""

    number: int
    size: int
    digest: bytes


def as_json(kind: str, data: bytes) -> Shown:
    """What a serializer has made of a value: as JSON if it is MessagePack and that gives the same back, else as text or
    base64. No type of it is looked up."""
    if kind == "null":
        return {"value": None}
    if kind == "msgpack":
        with suppress(TypeError, ValueError, RecursionError):  # bytes in it, or another serializer
            value = _unpacked(data)
            if clean(around := [[[[[[value]]]]]]) is around and _packed(value) == data:  # as deep as in a row
                return {"value": value}
    try:
        return {"type": kind, "text": data.decode()}
    except ValueError:
        return {"type": kind, "base64": base64.b64encode(data).decode()}


def from_json(shown: Shown) -> tuple[str, bytes]:
    if "value" in shown:
        return ("null", b"") if shown["value"] is None else ("msgpack", _packed(shown["value"]))
    return shown["type"], shown["text"].encode() if "text" in shown else base64.b64decode(shown["base64"])


def _unpacked(data: bytes) -> Any:
    """An extension is shown as its code and its content, which is MessagePack, too."""
    return ormsgpack.unpackb(
        data, ext_hook=lambda code, of: {"$type": [code, _unpacked(of)]}, option=ormsgpack.OPT_NON_STR_KEYS
    )


def _packed(value: Any) -> bytes:
    def revived(each: Shown) -> Any:
        return ormsgpack.Ext(each["$type"][0], ormsgpack.packb(each["$type"][1])) if each.keys() == {"$type"} else each

    return ormsgpack.packb(json.loads(json.dumps(value), object_hook=revived))


def elements_of(data: bytes) -> tuple[int, bytes]:
    """How many elements a list in MessagePack has, and all of them. No elements if it is none."""
    if data[0] & 0xF0 == 0x90:
        return data[0] & 0x0F, data[1:]
    size = {0xDC: 2, 0xDD: 4}.get(data[0], 0)
    return int.from_bytes(data[1 : 1 + size], "big"), data[1 + size :]


def beginning(number: int, elements: bytes, old: Beginning | None = None) -> tuple[Beginning, bool]:
    """A list, and whether it is `old` and more."""
    size = old.size if old and number > old.number else 0
    hashed = blake2b(elements[:size], digest_size=16)
    follows = bool(size) and old is not None and hashed.digest() == old.digest
    hashed.update(elements[size:])
    return Beginning(number, len(elements), hashed.digest()), follows


def list_of(number: int, elements: bytes) -> bytes:
    return (bytes([0x90 | number]) if number < 16 else b"\xdd" + number.to_bytes(4, "big")) + elements


def joined(values: list[tuple[str, bytes]]) -> tuple[str, bytes]:
    if len(values) == 1:
        return values[0]
    counts, parts = zip(*(elements_of(data) for _, data in values), strict=True)
    return "msgpack", list_of(sum(counts), b"".join(parts))
