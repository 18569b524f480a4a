"""Write an output: a version of another program is kept, and a version of a later owner stays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from ..base import Refused
from ..journal.records import Output
from ..store import FileChanged, Store, read_if_there
from .edits.findings import Refusal
from .edits.rejected import reject

_READ_LIMIT = 1 << 32


class Made(NamedTuple):
    output: Output
    kept: str = ""  # the place of another program's version


def write(store: Store, path: str, data: bytes, last: Output | None, check_owner: Callable[[], None]) -> Made:
    """Make `data` the output `path`, durably. `last` is what the run has made there last; None: nothing yet.

    Only `last` or nothing is replaced. For anything else `check_owner` first raises if this process no longer has the
    workspace. Then that version is kept as rejected, unless its bytes are those of `last` or of `data`. Not guaranteed,
    on a disk: that a save in the microseconds between a look and the replacement is seen; and in a bucket, whose
    versions are hashes: that a late request does nothing if the same bytes are there again.
    """
    sha256, kept = hashlib.sha256(data).hexdigest(), ""
    known = last.version if last else ""
    while True:
        try:
            if known:
                version = store.replace(path, data, if_version=known)
            else:
                store.create(path, data)
                version = store.version(path) or ""
            md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
            return Made(Output(sha256, len(data), version, md5), kept)
        except (FileChanged, FileExistsError):
            there = read_if_there(store, path, limit=_READ_LIMIT)
        check_owner()  # after the look: a later owner's write has another version
        if there is None:
            known = ""
            continue
        known = there.version
        if hashlib.sha256(there.data).hexdigest() not in (sha256, last.sha256 if last else ""):
            kept = reject(store, Refusal(path, _overruled(path), there.data), "and the agent has made it again")


def _overruled(path: str) -> Refused:
    return Refused(
        "is not what the run made",
        path=path,
        why="another program wrote it, or an interrupted attempt wrote it",
        remedy="add to the new version what is missing there",
    )
