"""What a scope or an agent returns, as it is recorded."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...workspace.lifecycle import Workspace
from ...workspace.state import Kept, blobs
from ..steps import Codec, attributes, encode


class Returned(NamedTuple):
    """A result in the form for a record, and as every later start will read it."""

    kept: Kept
    value: Any


def returned(workspace: Workspace, value: Any, what: str, codec: Codec) -> Returned:
    """NotSerializable or UsageError for a value that can't be kept: here, and not at every start after it has been
    recorded."""
    data = workspace.redactor.json(encode(value, what))
    attributes.check_private(value, codec, what)
    answer, data = codec.returned(data)
    is_kept = data != b"null"
    return Returned(blobs.keep(workspace.store, data, workspace.journal.generation) if is_kept else Kept(), answer)
