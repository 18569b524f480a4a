"""`moved.yaml`: a run that has moved leaves it at the old place.

With this file the place is no workspace any more, whatever else is there.
"""

from __future__ import annotations

import shlex

import msgspec

from ... import schemas
from ..base import InvalidFile, SatchelError, UsageError, decode
from ..formats import decoder, yamltext
from ..store import Store
from . import transfer_file

PATH = "moved.yaml"
_LIMIT = 1 << 16

_HEAD = """\
# This run was moved to another place. You can delete what is left here. `satchel move` brings the run back.
"""


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    format: int = 1
    run_id: str
    to: str  # where it went: a URL, or a path of the machine that `by` names
    at: str
    by: str
    satchel: str
    sha256: str = ""  # of the list of moved files, see transfer/inventory.py


_tombstone = decoder(Tombstone)


def encode(tombstone: Tombstone) -> bytes:
    return (_HEAD + yamltext.dump(msgspec.to_builtins(tombstone))).encode()


def parse(data: bytes) -> Tombstone | None:
    """None if it is not valid: a person may have a file of this name."""
    try:
        value = yamltext.load(decode(data, PATH), PATH).value
    except SatchelError:
        return None
    if value is None or schemas.problems("moved", value):
        return None
    tombstone: Tombstone = _tombstone.decode(msgspec.json.encode(value))
    return tombstone


def read(store: Store) -> Tombstone | None:
    """The tombstone of a place, if the run that it names is not at home there."""
    if store.version(PATH) is None:
        return None
    try:
        return parse(store.read(PATH, limit=_LIMIT).data)
    except (FileNotFoundError, InvalidFile):
        return None


def gone(url: str, tombstone: Tombstone, *, is_cleared: bool) -> UsageError:
    """The error for opening the place."""
    there = shlex.quote(tombstone.to)
    remedy = f"look at it with `satchel status {there}`"
    if not is_cleared:
        remedy += f". Some of its files are still here; `satchel move {shlex.quote(url)} {there}` finishes the move"
    why = f"{tombstone.by} moved it to {tombstone.to} at {tombstone.at}"
    return UsageError(f"the run {tombstone.run_id} is at another place now", path=url, why=why, remedy=remedy)


def refuse(store: Store, run_id: str | None) -> None:
    """UsageError if the run that is defined here, or was, has moved away. `run_id`: none is defined."""
    found = read(store)
    if found is not None and run_id in (None, found.run_id):
        raise gone(store.url, found, is_cleared=store.version(transfer_file.LEAVING) is None)
