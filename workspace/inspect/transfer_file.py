"""Two small files at the two ends of a copy or a move, so that an interrupted one can continue.

`.satchel/moving.json`, the first file at the destination: which run comes here, and from where. Once workspace.yaml is
there, it tells the first opening how the run has come (lifecycle/adopt.py).

`journal/leaving.json`, at the source of a move: the files to remove, by hash, so that a changed file is not removed. It
is in journal/ because an opening lists that again after its fence. It comes before the tombstone, so an opening that
finds it also looks for the tombstone.
"""

from __future__ import annotations

import shlex
from typing import Literal

import msgspec
from msgspec.structs import replace

from ..base import DEFINITION, InvalidFile, UsageError
from ..formats import decoder
from ..store import Store

PATH = ".satchel/moving.json"
LEAVING = "journal/leaving.json"
_LEAVING_LIMIT = 1 << 30

Kind = Literal["move", "copy", "fork"]


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

    def is_same_journey(self, other: Manifest) -> bool:
        journeys = [replace(each, began="", by="") for each in (self, other)]
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


_manifest, _leaving = decoder(Manifest), decoder(_Leaving)


def encode(value: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def read(store: Store) -> Manifest | None:
    """None if there is none, or it is not valid."""
    if store.version(PATH) is None:
        return None
    try:
        manifest: Manifest = _manifest.decode(store.read(PATH, limit=1 << 16).data)
        return manifest
    except (FileNotFoundError, InvalidFile, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


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
    if store.version(LEAVING) is None:
        return {}
    try:
        files: dict[str, str] = _leaving.decode(store.read(LEAVING, limit=_LEAVING_LIMIT).data).files
        return files
    except (FileNotFoundError, InvalidFile, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
