"""Copies of the schemas in `.satchel/schemas/`, for editors."""

from __future__ import annotations

from ... import schemas
from ..base import SCHEMAS
from ..store import Store, Sync, read_if_there

_OWN = "data"
"""The agent writes its own."""


def all_in(store: Store) -> None:
    """The schemas of all files. Not in a bucket, where each copy would be an object in every listing and no editor
    opens a file in place: there the ones that another tool has copied are removed."""
    if store.abilities.remote:
        if copies := [entry.path for entry in store.list(SCHEMAS) if is_copy(entry.path)]:
            store.remove_many(copies)
        return
    for name in schemas.names():
        if name != _OWN or store.version(_path(name)) is None:
            publish(store, name, schemas.text(name), sync="data" if name == _OWN else "no")


def publish(store: Store, name: str, schema: str, *, sync: Sync = "data") -> None:
    """Copy a schema for editors. Edits are also checked against data.json, so that one is synced. The next opening
    repairs the others after a power failure."""
    path, data = _path(name), schema.encode()
    store.expect(path, data)
    there = read_if_there(store, path) if store.version(path) is not None else None
    if there is None or there.data != data:
        store.replace(path, data, sync=sync)


def is_copy(path: str) -> bool:
    """Whether every opening writes this file again, or removes it."""
    folder, _, name = path.rpartition("/")
    return folder == SCHEMAS and name.removesuffix(".json") in {*schemas.names()} - {_OWN} and name.endswith(".json")


def _path(name: str) -> str:
    return f"{SCHEMAS}/{name}.json"
