"""`export.json`: what an export holds. A folder with this file is a copy, which asks before it runs."""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from ..base import InvalidFile
from ..formats import decoder
from ..store import Store

PATH = "export.json"
ABOUT = "EXPORT.md"
"""The same for people."""

_LIMIT = 1 << 26


class ExportResult(Struct, frozen=True, kw_only=True):
    """What an export holds: the run as of record `seq`, at the time `at` of that record (0 and empty: it could not be
    read). `redacted`: the files in which secrets were replaced. `left_out`: what is not in it, in words. `not_set`:
    variables of `redact:` that the exporting process did not have. Their values were not looked for."""

    format: int = 1
    run_id: str
    url: str
    seq: int = 0
    at: str = ""
    satchel: str = ""
    files: int = 0
    redacted: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    not_set: list[str] = field(default_factory=list)


_exported = decoder(ExportResult)

_TEXT = """\
# An export of the run {run_id}

This folder is a copy of a workspace of Satchel, for reading. It shows the run as of record {seq} ({at}).

- Read `todo.md`, `state.json` and the other files, or type `satchel status`, `log` or `show` in this folder.
- `export.json` says what was left out, and which files were redacted.
- Don't continue the run here: it may live on at {url}. Satchel asks before it does.
"""


def encode(exported: ExportResult) -> bytes:
    return msgspec.json.format(msgspec.json.encode(exported), indent=2) + b"\n"


def about(exported: ExportResult) -> bytes:
    at = exported.at or "its journal can't be read"
    return _TEXT.format(run_id=exported.run_id, seq=exported.seq, at=at, url=exported.url).encode()


def read(store: Store) -> ExportResult | None:
    """None if the folder was not unpacked from an export."""
    if store.version(PATH) is None:
        return None
    try:
        found: ExportResult = _exported.decode(store.read(PATH, limit=_LIMIT).data)
        return found
    except (FileNotFoundError, InvalidFile, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # another file of this name
