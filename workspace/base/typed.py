"""Decoders of JSON to types. All code that decodes to a struct gets its decoder here.

msgspec analyses a struct when it first needs it, and stores the result with the class. It does so in Python code, so
another thread may run in between. That thread sees an incomplete result and crashes with a segmentation fault (msgspec
0.22). So decoders are made one at a time, and those of a module when it is imported. A test checks that
`msgspec.json.decode(..., type=...)` and `msgspec.convert` are not used with structs.
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
