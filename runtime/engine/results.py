"""What a scope or an agent returns, as it is recorded."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...workspace.state import Kept, blobs
from ...workspace.store import Store
from ..steps import Codec, encode


class Returned(NamedTuple):
    """A result in the form for a record, and as every later start will read it."""

    kept: Kept
    value: Any


def returned(store: Store, epoch: int, value: Any, what: str, codec: Codec) -> Returned:
    """NotSerializable or UsageError for a value that can't be kept: here, and not at every start after it has been
    recorded."""
    data = encode(value, what)
    answer = codec.decode(data)
    return Returned(blobs.keep(store, data, epoch) if data != b"null" else Kept(), answer)
