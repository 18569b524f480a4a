"""Results and other content that are too large for a record: a file each, named by its hash and a mark of when it was
written. The record refers to it.

The mark is a record's number: the first of the opening, or a later one since which old blobs may have been removed. So
the name of a removed blob is never used again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress

from msgspec import Raw, Struct
from msgspec.structs import replace

from ..base import Damaged
from ..store import LARGE_LIMIT, Store
from .line import Line
from .people import Rewound
from .records import NOTHING, SavedFile, StepCompleted
from .segment import CHECKPOINTS, FOLDER

BLOBS = ".satchel/blobs"
INLINE_BYTES = 64 << 10

_NAME = re.compile(r"[0-9a-f]{64}-[0-9]{1,12}")
_RETURN = re.compile(rb'"type":"rewound","to":[0-9]+,"by":"(?:[^"\\]|\\.)*","blob":"([0-9a-f]{64}-[0-9]+)"')


class Kept(Struct, frozen=True, omit_defaults=True):
    """A result: JSON, or the name of its blob. For a scope, also the number of its steps."""

    result: Raw = NOTHING
    blob: str = ""
    steps: int = 0


def keep(store: Store, result: bytes, mark: int) -> Kept:
    """`result` in the form for a record. A large one is in a blob, durably, when this returns. `mark`: the generation
    of the journal."""
    if len(result) <= INLINE_BYTES:
        return Kept(Raw(result))
    return Kept(blob=_put(store, hashlib.sha256(result).hexdigest(), result, mark))


def _put(store: Store, sha256: str, data: bytes, mark: int) -> str:
    """The name of the blob with these bytes, durable when this returns."""
    name = f"{sha256}-{mark}"
    if store.version(f"{BLOBS}/{name}") is None:
        store.replace(f"{BLOBS}/{name}", data)
    return name


def keep_file(store: Store, data: bytes, mark: int) -> SavedFile:
    """The content of a file in files/ in the form for a record, or in a blob, durably. `mark` as in `keep`."""
    sha256 = hashlib.sha256(data).hexdigest()
    if len(data) <= INLINE_BYTES and b"\0" not in data:
        with suppress(UnicodeDecodeError):
            return SavedFile(sha256=sha256, bytes=len(data), text=data.decode())
    return SavedFile(sha256=sha256, bytes=len(data), blob=_put(store, sha256, data, mark))


def fetch_file(store: Store, saved: SavedFile) -> bytes:
    """The bytes of a file in files/. Damaged as in `fetch`."""
    return _read(store, saved.blob) if saved.blob else saved.text.encode()


def fetch(store: Store, kept: Kept | StepCompleted) -> bytes:
    """The JSON of a result. Damaged if its blob is missing or does not have the hash in its name."""
    return _read(store, kept.blob) if kept.blob else bytes(kept.result) or b"null"


def _read(store: Store, name: str) -> bytes:
    path = f"{BLOBS}/{name}"
    if not _NAME.fullmatch(name):
        raise Damaged(f"the journal refers to {name!r}, which is not the name of a blob", path=FOLDER)
    try:
        data = store.read(path, limit=LARGE_LIMIT).data
    except FileNotFoundError:
        raise Damaged("a result is missing", path=path, remedy="restore .satchel/blobs/ from a backup") from None
    if hashlib.sha256(data).hexdigest() != name[:64]:
        raise Damaged("a result is not what was recorded", path=path, remedy="restore the file from a backup")
    return data


def filled(store: Store, line: Line) -> Line:
    """With the content of its blob, if the state can't be made without it. Results are read when they are needed."""
    record = line.record
    if not isinstance(record, Rewound) or not record.blob:
        return line
    return replace(line, record=replace(record, agents=Raw(_read(store, record.blob))))


def may_name(store: Store, paths: Iterable[str]) -> Iterator[bytes]:
    """What may name blobs and prompts: these files of the journal and checkpoints, and the large states of returns in
    them. Those name results whose own records may have gone. FileNotFoundError if one of the files is missing."""
    for path in paths:
        data = store.read(path, limit=LARGE_LIMIT).data
        yield data
        for found in _RETURN.findall(data):
            with suppress(FileNotFoundError):
                yield store.read(f"{BLOBS}/{found.decode()}", limit=LARGE_LIMIT).data


def unused(store: Store, before: int, gone: Collection[str], more: Callable[[], bytes]) -> list[str]:
    """The blobs with a mark below `before` that neither the journal nor a checkpoint refers to, except the files that
    are about to be `gone`. `more` returns what will be kept of those.

    FileNotFoundError if a file has been removed meanwhile: then another process is pruning.
    """
    found = {name: int(name.rpartition("-")[2]) for entry in store.list(BLOBS) if (name := _name_of(entry.path))}
    left = {name for name, mark in found.items() if mark < before}
    if not left:
        return []
    entries = [*store.list(FOLDER), *store.list(CHECKPOINTS)]
    for data in may_name(store, (entry.path for entry in entries if entry.path not in gone)):
        left -= _named_in(data)
    return [f"{BLOBS}/{name}" for name in sorted(left - _named_in(more()))]


def _name_of(path: str) -> str:
    name = path.rpartition("/")[2]
    return name if _NAME.fullmatch(name) else ""


def _named_in(data: bytes) -> set[str]:
    return {found.decode() for found in re.findall(_NAME.pattern.encode(), data)}
