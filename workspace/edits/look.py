"""Reads a file until it holds still: an editor may be in the middle of saving it."""

from __future__ import annotations

import hashlib
import time
from datetime import datetime

import msgspec

from ..errors import Refused
from ..moment import Moment
from ..stamp import Stamped
from ..store import Content, Store

LOOK_AGAIN = 0.05
"""Seconds between two looks that must be equal."""

_STILL = 8
"""So many looks in a row must be equal if the file was saved within the last seconds: an editor that writes it in
pieces may pause between."""

_RECENT = 3.0
_LOOKS = 100


def steady(store: Store, path: str) -> Content | None:
    """The file once it holds still; None if it is not there then. Refused if it never does."""
    seen, equal = _read(store, path), 1
    for _ in range(_LOOKS):
        if equal >= (looks_needed(store, path) if seen is not None or _is_whole(store) else 2):
            return seen
        if LOOK_AGAIN:
            time.sleep(LOOK_AGAIN)
        before, seen = seen, _read(store, path)
        equal = equal + 1 if before == seen else 1
    raise Refused("is being written all the time", path=path, remedy="run again when it is saved")


def looks_needed(store: Store, path: str) -> int:
    """How many equal looks at a file in a row say that nobody is in the middle of saving it. By the clock of whoever
    keeps the file, so one that is in the future counts as long ago."""
    if _is_whole(store):
        return 1
    saved = store.trace(path).at
    if not saved:
        return 2  # it is restored, and whatever is saved later is found by the next opening
    return _STILL if 0 <= time.time() - datetime.fromisoformat(saved).timestamp() < _RECENT else 2


def _is_whole(store: Store) -> bool:
    """Whether files appear whole, by whatever they were saved: objects do, of which each is one request."""
    return store.abilities.remote and store.abilities.conditional_replace


def _read(store: Store, path: str) -> Content | None:
    if store.version(path) is None:
        return None
    try:
        return store.read(path)
    except FileNotFoundError:
        return None


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _OfRun(msgspec.Struct):
    run_id: str


def is_of_run(data: bytes, run_id: str) -> bool:
    """A JSON file of another run may be untouched too, and would be lost if it were taken for one that lags."""
    try:
        return msgspec.json.decode(data, type=_OfRun).run_id == run_id
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def is_blank(data: bytes) -> bool:
    """Nothing is in it: an editor has truncated it, or a power failure has left a hole."""
    return not data.strip(b" \t\r\n\0\xef\xbb\xbf")


def ahead(path: str, stamped: Stamped, moment: Moment) -> Refused | None:
    """What to say of a file from a later moment than the journal's; None if it is not from one."""
    stamp = stamped.stamp
    if stamp is None or (stamp.seq <= moment.seq and stamp.epoch <= moment.epoch):
        return None
    return Refused(
        f"belongs to a later moment (record {stamp.seq}) than the journal (record {moment.seq})", path=path,
        why="the folder was copied while the run was going, or the journal was replaced by an older one",
        remedy="copy the whole folder anew, or move this file away to go on from where the journal stands",
    )  # fmt: skip


def foreign(path: str, why: str) -> Refused:
    return Refused(
        "does not belong to this run", path=path, why=why,
        remedy="to change the plan or the data, edit the file of this run",
    )  # fmt: skip
