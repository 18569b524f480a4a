"""Results too large for the journal, one file each, named by their hash and a mark of when they were written.

The mark is a record's number: the first of the opening, or a later one since which old blobs may have been removed. So
the name of a removed blob is never used again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection

from msgspec import Raw

from .. import journal
from ..journal.records import StepCompleted
from ..store import Store
from .scope_state import Kept

FOLDER = journal.BLOBS
INLINE_BYTES = 64 << 10


def keep(store: Store, result: bytes, mark: int) -> Kept:
    """`result` in the form for a record. A large one is in a blob, durably, when this returns. `mark`: the generation
    of the journal."""
    if len(result) <= INLINE_BYTES:
        return Kept(Raw(result))
    name = f"{hashlib.sha256(result).hexdigest()}-{mark}"
    if store.version(f"{FOLDER}/{name}") is None:
        store.replace(f"{FOLDER}/{name}", result)
    return Kept(blob=name)


def fetch(store: Store, kept: Kept | StepCompleted) -> bytes:
    """The JSON of a result. Damaged if its blob is missing or does not have the hash in its name."""
    return journal.blob(store, kept.blob) if kept.blob else bytes(kept.result) or b"null"


def unused(store: Store, before: int, gone: Collection[str], more: Callable[[], bytes]) -> list[str]:
    """The blobs with a mark below `before` that neither the journal nor a checkpoint refers to, except the files that
    are about to be `gone`. `more` returns what will be kept of those.

    FileNotFoundError if a file has been removed meanwhile: then another process is pruning.
    """
    found = {name: int(name.rpartition("-")[2]) for entry in store.list(FOLDER) if (name := _name_of(entry.path))}
    left = {name for name, mark in found.items() if mark < before}
    if not left:
        return []
    entries = [*store.list(journal.FOLDER), *store.list(journal.CHECKPOINTS)]
    for data in journal.may_name(store, (entry.path for entry in entries if entry.path not in gone)):
        left -= _named_in(data)
    return [f"{FOLDER}/{name}" for name in sorted(left - _named_in(more()))]


def _name_of(path: str) -> str:
    name = path.rpartition("/")[2]
    return name if journal.BLOB_NAME.fullmatch(name) else ""


def _named_in(data: bytes) -> set[str]:
    return {found.decode() for found in re.findall(journal.BLOB_NAME.pattern.encode(), data)}
