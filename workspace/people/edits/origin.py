"""What the bytes of a readable file alone tell: its run, and its moment."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from ....schemas import short
from ...base import Refused, Stamped, decode
from ...formats import decoder, jsontext
from ...state import Moment
from ...store import Trace


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def mark_of(data: bytes, trace: Trace) -> str:
    """The same for messages.jsonl. A person may cut a conversation off at the same message again, so of a cut the time
    counts, too. All other edits change nothing the second time."""
    return sha(data + trace.at.encode() if b'"cut"' in data else data)


class _OfRun(msgspec.Struct):
    run_id: str


_of_run = decoder(_OfRun)


def is_of_run(data: bytes, run_id: str) -> bool:
    """A JSON file of another run may be untouched too. It must not be taken for an old one of this run, because it
    would be lost."""
    try:
        return bool(_of_run.decode(data).run_id == run_id)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def object_of_run(data: bytes, path: str, run_id: str, remedy: str) -> dict[str, Any]:
    """The object that a JSON file of this run holds. InvalidFile if it is not JSON, Refused if it holds something else
    or is another run's. `remedy` says what may be edited in it."""
    found = jsontext.load(decode(data, path), path)
    if not isinstance(found, dict):
        raise Refused("is no longer an object", path=path, remedy=remedy)
    if found.get("run_id", run_id) != run_id:
        raise foreign(path, f"it says it belongs to the run {short(found['run_id'])}")
    return found


def is_blank(data: bytes) -> bool:
    """It is empty: an editor has truncated it, or a power failure has left a hole."""
    return not data.strip(b" \t\r\n\0\xef\xbb\xbf")


def ahead(path: str, stamped: Stamped, moment: Moment) -> Refused | None:
    """The message about a file from a later moment than the journal's; None if it is not."""
    stamp = stamped.stamp
    if stamp is None or (stamp.seq <= moment.seq and stamp.epoch <= moment.epoch):
        return None
    return Refused(
        f"is newer (record {stamp.seq}) than the journal (record {moment.seq})",
        path=path,
        why="the folder was copied during the run, or the journal was replaced by an older one",
        remedy="copy the whole folder again, or move this file away to continue from the journal",
    )


def of_another_run(path: str, why: str) -> Refused:
    return Refused(
        "is from another run", path=path, why=why, remedy="copy a file of this run, from its own folder checkpoints/"
    )


def foreign(path: str, why: str) -> Refused:
    return Refused(
        "does not belong to this run",
        path=path,
        why=why,
        remedy="to change the plan or the data, edit the file of this run",
    )
