"""Decoders of JSON to types. Whatever decodes to a struct of Satchel's or of an agent's gets its decoder here.

msgspec finds out what a struct is made of when it first needs to know, and keeps that with the class. It does so in
Python code, so another thread may come in between. That thread sees the half of it that is there, and dies of a
segmentation fault (msgspec 0.22). So decoders are made one at a time, and those of a module when it is imported.
`msgspec.json.decode(..., type=...)` and `msgspec.convert` are not used with structs: a test sees to that.
"""

from __future__ import annotations

import threading
from typing import Any

from msgspec.json import Decoder

_one = threading.RLock()


def decoder(kind: Any, **options: Any) -> Decoder[Any]:
    """A decoder of JSON to `kind`; the options are msgspec's. TypeError if msgspec can't decode to it."""
    with _one:
        return Decoder(kind, **options)
