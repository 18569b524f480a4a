"""The small files at the two ends of a copy, a move, an export or a backup: an interrupted one can continue, and the
run is found.

`.satchel/moving.json`, the first file at the destination: which run comes here, and from where. Once workspace.yaml is
there, it tells the first opening how the run has come (lifecycle/acquire.py).

`journal/leaving.json`, at the source of a move: the files to remove, by hash, so that a changed file is not removed. It
is in journal/ because an opening lists that again after its fence. It comes before the tombstone, so an opening that
finds it also looks for the tombstone.

`moved.yaml`, the tombstone: a run that has moved leaves it at the old place. With this file the place is no workspace
any more, whatever else is there. So workspace.yaml is read here (`define`): only if the run has not moved away.

`goes_along` says which files of a place belong to its run: all but those of a process or a machine.

`export.json`: what an export holds, and `EXPORT.md` the same for people. A folder with it is a copy, which asks before
it runs.

`backup.json`, in the copy: of which run, of which place, and who has restored it. A place with it is no workspace that
anything may start, whatever else is there. It is the first file of a copy and the last to say that it is `whole`.

`.satchel/backup.json`, in the workspace: where its copy is, how far it was, and what is wrong. An opening that finds it
follows the same place again, and learns there whether the run was restored elsewhere meanwhile.
"""

from __future__ import annotations

import shlex
from typing import Literal

import msgspec
from msgspec.json import Decoder
from msgspec.structs import replace

from ... import schemas
from ..base import DEFINITION, InvalidFile, LeaseHeld, NoWorkspace, SatchelError, UsageError, decode
from ..formats import Definition, decoder, definition, jsontext, yamltext
from ..store import DISPLACED, LARGE_LIMIT, LOCK, PROBE, TEMPORARY, Store, read_own
from ..views import running_file
from . import lease

PATH = ".satchel/moving.json"
LEAVING = "journal/leaving.json"

MOVED = "moved.yaml"
EXPORT, EXPORT_ABOUT = "export.json", "EXPORT.md"
BACKUP_MARK = "backup.json"
BACKUP_NOTE = ".satchel/backup.json"
BACKUP_SENT = ".satchel/backup-files.json"
_LIMIT = 1 << 16
_HEAD = """\
# This run was moved to another place. You can delete what is left here. `satchel move` brings the run back.
"""

Kind = Literal["move", "copy", "fork", "restore"]


class LostPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The place whose backup is restored: its last record there, and the time of that. `certain`: a person has said
    that nothing was done after it."""

    source: str
    seq: int
    at: str
    certain: bool = False


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int = 1
    run_id: str
    kind: Kind
    source: str = msgspec.field(name="from")
    to: str
    began: str
    by: str
    at: int = 0  # of a fork: the record that was named; 0: the newest
    options: tuple[str, ...] = ()  # of a fork
    replays: bool = False  # the fork is one of a replay
    lost: LostPlace | None = None  # of a restoration

    def is_same_journey(self, other: Manifest) -> bool:
        journeys = [replace(each, began="", by="", lost=None) for each in (self, other)]
        return journeys[0] == journeys[1]

    @property
    def remedy(self) -> str:
        """What a person may do if no process brings it any more."""
        if self.replays:
            return "type the same `satchel replay` again, or remove this folder"
        words = ["satchel", self.kind, self.source, self.to]
        if self.kind == "fork":
            words += [*(["--at", str(self.at)] if self.at else []), "--run-id", self.run_id, *self.options]
        return f"`{shlex.join(words)}` continues the transfer"


class _Leaving(msgspec.Struct):
    files: dict[str, str]
    format: int = 1


_manifest: Decoder[Manifest] = decoder(Manifest)
_leaving: Decoder[_Leaving] = decoder(_Leaving)


def encode(value: Manifest | BackupMark | BackupNote | ExportResult) -> bytes:
    return jsontext.encode(value)


def read(store: Store) -> Manifest | None:
    """None if there is none, or it is not valid."""
    return read_own(store, PATH, _manifest, limit=_LIMIT)


def refuse(store: Store) -> None:
    """UsageError for a place where a run is only half copied: one without a workspace.yaml."""
    found = read(store)
    if found is not None and store.version(DEFINITION) is None:
        raise UsageError(
            "is not a workspace yet",
            path=store.url,
            why=f"the run {found.run_id} is on its way here from {found.source} since {found.began}",
            remedy=f"if no process brings it any more, {found.remedy}",
        )


def write_leaving(store: Store, hashes: dict[str, str]) -> None:
    store.replace(LEAVING, msgspec.json.encode(_Leaving(hashes)))


def read_leaving(store: Store) -> dict[str, str]:
    """The SHA-256 of each file that was moved away from here. Empty if nothing is left to remove."""
    found = read_own(store, LEAVING, _leaving, limit=LARGE_LIMIT)
    return found.files if found is not None else {}


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    format: int = 1
    run_id: str
    to: str  # where it went: a URL, or a path of the machine that `by` names
    at: str
    by: str
    satchel: str
    sha256: str = ""  # of the list of moved files, see transfer/copy_files.py


_tombstone = decoder(Tombstone)


def encode_tombstone(tombstone: Tombstone) -> bytes:
    return (_HEAD + yamltext.dump(msgspec.to_builtins(tombstone))).encode()


def parse_tombstone(data: bytes) -> Tombstone | None:
    """None if it is not valid: a person may have a file of this name."""
    try:
        value = yamltext.load(decode(data, MOVED), MOVED).value
    except SatchelError:
        return None
    if value is None or schemas.problems("moved", value):
        return None
    tombstone: Tombstone = _tombstone.decode(msgspec.json.encode(value))
    return tombstone


def read_tombstone(store: Store) -> Tombstone | None:
    """The tombstone of a place, if the run that it names is not at home there."""
    if store.version(MOVED) is None:
        return None
    try:
        return parse_tombstone(store.read(MOVED, limit=_LIMIT).data)
    except (FileNotFoundError, InvalidFile):
        return None


def moved_error(url: str, tombstone: Tombstone, *, is_cleared: bool) -> UsageError:
    """The error for opening the place."""
    there = shlex.quote(tombstone.to)
    remedy = f"look at it with `satchel status {there}`"
    if not is_cleared:
        remedy += f". Some of its files are still here; `satchel move {shlex.quote(url)} {there}` finishes the move"
    why = f"{tombstone.by} moved it to {tombstone.to} at {tombstone.at}"
    return UsageError(f"the run {tombstone.run_id} is at another place now", path=url, why=why, remedy=remedy)


def refuse_moved(store: Store, run_id: str | None) -> None:
    """UsageError if the run that is defined here, or was, has moved away. `run_id`: none is defined."""
    found = read_tombstone(store)
    if found is not None and run_id in (None, found.run_id):
        raise moved_error(store.url, found, is_cleared=store.version(LEAVING) is None)


class ExportResult(msgspec.Struct, frozen=True, kw_only=True):
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
    redacted: list[str] = msgspec.field(default_factory=list)
    left_out: list[str] = msgspec.field(default_factory=list)
    not_set: list[str] = msgspec.field(default_factory=list)


_exported: Decoder[ExportResult] = decoder(ExportResult)

_ABOUT = """\
# An export of the run {run_id}

This folder is a copy of a workspace of Satchel, for reading. It shows the run as of record {seq} ({at}).

- Read `todo.md`, `state.json` and the other files, or type `satchel status`, `log` or `show` in this folder.
- `export.json` says what was left out, and which files were redacted.
- Don't continue the run here: it may live on at {url}. Satchel asks before it does.
"""


def about_export(exported: ExportResult) -> bytes:
    at = exported.at or "its journal can't be read"
    return _ABOUT.format(run_id=exported.run_id, seq=exported.seq, at=at, url=exported.url).encode()


def read_export(store: Store) -> ExportResult | None:
    """None if the folder was not unpacked from an export."""
    return read_own(store, EXPORT, _exported, limit=1 << 26)


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """A copy was restored: where to, and how far it was. From here on the old owner is fenced off."""

    to: str
    at: str
    by: str
    seq: int  # the last record of the lost place


class BackupMark(msgspec.Struct, frozen=True, kw_only=True):
    """What the copy says of itself. Times are UTC, ISO 8601."""

    format: int = 1
    run_id: str
    source: str = msgspec.field(name="of")  # the place that it follows, as of its host
    host: str
    by: str
    began: str
    seq: int = 0  # when it was written, the copy had all records up to this one
    at: str = ""
    whole: bool = False  # everything has arrived once
    restored: Restored | None = None


BackupState = Literal["following", "ended", "away", "refused", "overtaken", "adopted"]
"""The copy follows; it has all that the last process has recorded; its place can't be reached; it can't be used; the
run was restored from it; and a person has decided that the run goes on here all the same."""


class BackupNote(msgspec.Struct, frozen=True, kw_only=True):
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


def parse_mark(data: bytes) -> BackupMark | None:
    """None if it is not valid: a person may have a file of this name."""
    return jsontext.decode(data, _mark)


def read_mark(store: Store) -> BackupMark | None:
    """None if the place is no backup."""
    return read_own(store, BACKUP_MARK, _mark, limit=_LIMIT)


def read_note(store: Store) -> BackupNote | None:
    """None if the workspace has no backup."""
    return read_own(store, BACKUP_NOTE, _note, limit=_LIMIT)


def refuse_backup(store: Store) -> None:
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


def define(store: Store) -> Definition:
    """The content of workspace.yaml. NoWorkspace if there is none, UsageError if the run has moved away."""
    if store.version(DEFINITION) is None:
        refuse(store)
        refuse_moved(store, None)
    described = read_definition(store)
    refuse_moved(store, described.run_id)
    return described


def read_definition(store: Store) -> Definition:
    """The content of workspace.yaml, also if the run has moved away."""
    try:
        data = store.read(DEFINITION, limit=definition.LIMIT).data
    except FileNotFoundError:
        raise NoWorkspace(
            "is not a workspace",
            path=store.url,
            why=f"it has no {DEFINITION}",
            remedy="`satchel new` makes a workspace; for an agent of your own write the file, with `format: 1`, "
            "`run_id: NAME` and `agent: agent.py:main`; `satchel ls` lists the workspaces under a folder",
        ) from None
    return definition.parse(decode(data, DEFINITION))


_STAYING = frozenset((LOCK, lease.PATH, PATH, LEAVING, BACKUP_MARK, BACKUP_NOTE, BACKUP_SENT))


def goes_along(path: str) -> bool:
    """Whether a copy, a move or a backup takes this file along."""
    return not (path in _STAYING or path.startswith(f"{DISPLACED}/") or is_passing(path))


def is_passing(path: str) -> bool:
    """Useless once the process that has made it has ended."""
    return (
        path in (running_file.PATH, lease.CLAIM) or path.startswith((f"{TEMPORARY}/", PROBE)) or is_of_a_process(path)
    )


def is_of_a_process(path: str) -> bool:
    """A log of the processes that ran here, or compiled Python: not needed."""
    folder, _, name = path.rpartition("/")
    return (folder == ".satchel" and name.endswith(".log")) or "__pycache__" in folder.split("/")
