"""Results too large for the journal, one file each, named by their hash and by the epoch that wrote them.

The name contains the epoch because the name of a deleted file is never used again.
"""

from __future__ import annotations

import hashlib
import re

from msgspec import Raw

from ..base import Damaged
from ..journal.records import StepCompleted
from ..store import Store
from .scope_state import Kept

FOLDER = ".satchel/blobs"
INLINE_BYTES = 64 << 10
_NAME = re.compile(r"[0-9a-f]{64}-[0-9]{1,9}")
_READ_LIMIT = 1 << 30


def keep(store: Store, result: bytes, epoch: int) -> Kept:
    """`result` in the form for a record. A large one is in a blob, durably, when this returns."""
    if len(result) <= INLINE_BYTES:
        return Kept(Raw(result))
    name = f"{hashlib.sha256(result).hexdigest()}-{epoch}"
    if store.version(f"{FOLDER}/{name}") is None:
        store.replace(f"{FOLDER}/{name}", result)
    return Kept(blob=name)


def fetch(store: Store, kept: Kept | StepCompleted) -> bytes:
    """The JSON of a result. Damaged if its blob is missing or does not have the hash in its name."""
    if not kept.blob:
        return bytes(kept.result) or b"null"
    path = f"{FOLDER}/{kept.blob}"
    if not _NAME.fullmatch(kept.blob):
        raise Damaged(f"the journal refers to {kept.blob!r}, which is not the name of a blob", path=FOLDER)
    try:
        data = store.read(path, limit=_READ_LIMIT).data
    except FileNotFoundError:
        raise Damaged("a result is missing", path=path, remedy="restore .satchel/blobs/ from a backup") from None
    if hashlib.sha256(data).hexdigest() != kept.blob[:64]:
        raise Damaged("a result is not what was recorded", path=path, remedy="restore the file from a backup")
    return data
