"""Content that is too large for a record: a file named by its hash, which the record refers to.
state/result_blobs.py writes it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec import Raw
from msgspec.structs import replace

from ..base import Damaged
from ..store import Store
from .records.line import Line
from .records.people import Rewound
from .segment import FOLDER

BLOBS = ".satchel/blobs"
BLOB_NAME = re.compile(r"[0-9a-f]{64}-[0-9]{1,12}")

_READ_LIMIT = 1 << 30
_RETURN = re.compile(rb'"type":"rewound","to":[0-9]+,"by":"(?:[^"\\]|\\.)*","blob":"([0-9a-f]{64}-[0-9]+)"')


def blob(store: Store, name: str) -> bytes:
    """Damaged if it is missing or does not have the hash in its name."""
    path = f"{BLOBS}/{name}"
    if not BLOB_NAME.fullmatch(name):
        raise Damaged(f"the journal refers to {name!r}, which is not the name of a blob", path=FOLDER)
    try:
        data = store.read(path, limit=_READ_LIMIT).data
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
    return replace(line, record=replace(record, agents=Raw(blob(store, record.blob))))


def may_name(store: Store, paths: Iterable[str]) -> Iterator[bytes]:
    """What may name blobs and prompts: these files of the journal and checkpoints, and the large states of returns in
    them. Those name results whose own records may have gone. FileNotFoundError if one of the files is missing."""
    for path in paths:
        data = store.read(path, limit=_READ_LIMIT).data
        yield data
        for found in _RETURN.findall(data):
            with suppress(FileNotFoundError):
                yield store.read(f"{BLOBS}/{found.decode()}", limit=_READ_LIMIT).data
