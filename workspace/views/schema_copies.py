"""Copies of the schemas in `.satchel/schemas/`, for editors."""

from __future__ import annotations

from ... import schemas
from ..base import SCHEMAS
from ..store import Store, Sync

_OWN = "data"
"""The agent writes its own."""


def all_in(store: Store) -> None:
    """The schemas of all files. Not in a bucket, where each copy would be an object in every listing and no editor
    opens a file in place: there the ones that came with a copy or a move are removed."""
    if store.abilities.remote:
        listed = {entry.path for entry in store.list(SCHEMAS)}
        if copies := sorted(listed & {_path(name) for name in schemas.names() if name != _OWN}):
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
    if store.version(path) is None or store.read(path).data != data:
        store.replace(path, data, sync=sync)


def _path(name: str) -> str:
    return f"{SCHEMAS}/{name}.json"
