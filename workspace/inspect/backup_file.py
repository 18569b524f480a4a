"""The two small files of a backup: a copy that follows a run, so that the loss of a machine loses little.

`backup.json`, in the copy: of which run, of which place, and who has restored it. A place with it is no workspace that
anything may start, whatever else is there. It is the first file of a copy and the last to say that it is `whole`.

`.satchel/backup.json`, in the workspace: where its copy is, how far it was, and what is wrong. An opening that finds it
follows the same place again, and learns there whether the run was restored elsewhere meanwhile.
"""

from __future__ import annotations

import shlex
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.json import Decoder

from ..base import LeaseHeld, UsageError
from ..formats import decoder, jsontext
from ..store import Store, read_own

MARK = "backup.json"
NOTE = ".satchel/backup.json"
SENT = ".satchel/backup-files.json"
_LIMIT = 1 << 16


class Restored(Struct, frozen=True, kw_only=True):
    """A copy was restored: where to, and how far it was. From here on the old owner is fenced off."""

    to: str
    at: str
    by: str
    seq: int  # the last record of the lost place


class BackupMark(Struct, frozen=True, kw_only=True):
    """What the copy says of itself. Times are UTC, ISO 8601."""

    format: int = 1
    run_id: str
    source: str = msgspec.field(name="of")  # the place that it follows, as of its host
    host: str
    by: str
    began: str
    seq: int = 0  # when it was written, the copy was complete up to this record
    at: str = ""
    whole: bool = False  # everything has arrived once
    restored: Restored | None = None


BackupState = Literal["following", "ended", "away", "refused", "overtaken", "adopted"]
"""The copy follows; it has all that the last process has recorded; its place can't be reached; it can't be used; the
run was restored from it; and a person has decided that the run goes on here all the same."""


class BackupNote(Struct, frozen=True, kw_only=True):
    """What the workspace knows of its copy. Times are UTC, ISO 8601."""

    format: int = 1
    run_id: str
    to: str
    state: BackupState
    seq: int = 0  # the last record that the copy has
    at: str = ""  # when that was known
    since: str = ""  # of a state that is not `following`
    why: str = ""
    restored: Restored | None = None


_mark: Decoder[BackupMark] = decoder(BackupMark)
_note: Decoder[BackupNote] = decoder(BackupNote)


def encode(value: BackupMark | BackupNote) -> bytes:
    return jsontext.encode(value)


def parse_mark(data: bytes) -> BackupMark | None:
    """None if it is not valid: a person may have a file of this name."""
    return jsontext.decode(data, _mark)


def read_mark(store: Store) -> BackupMark | None:
    """None if the place is no backup."""
    return read_own(store, MARK, _mark, limit=_LIMIT)


def read_note(store: Store) -> BackupNote | None:
    """None if the workspace has no backup."""
    return read_own(store, NOTE, _note, limit=_LIMIT)


def refuse(store: Store) -> None:
    """UsageError if the place is a backup."""
    if (mark := read_mark(store)) is None:
        return
    here, what = shlex.quote(store.url), f"it follows {mark.source} on {mark.host}"
    if mark.restored is not None:
        what += f", and was restored to {mark.restored.to} at {mark.restored.at}"
    raise UsageError(
        f"is a backup of the run {mark.run_id}, and nothing runs in it",
        path=store.url,
        why=what,
        remedy=f"if that machine is lost, `satchel restore {here} DST` brings the run to another place",
    )


def refuse_overtaken(store: Store) -> None:
    """LeaseHeld if the run was restored from its backup to another place, and no person has said that it goes on
    here."""
    if (note := read_note(store)) is not None and note.state == "overtaken":
        raise LeaseHeld(note.why)
