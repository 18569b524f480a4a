"""Read workspace.yaml, unless the run has moved away."""

from __future__ import annotations

from ..base import DEFINITION, UsageError, decode
from ..formats import Definition, definition
from ..store import Store
from . import moved_file, transfer_file


def define(store: Store) -> Definition:
    """The content of workspace.yaml. UsageError if there is none, or if the run has moved away."""
    if store.version(DEFINITION) is None:
        transfer_file.refuse(store)
        moved_file.refuse(store, None)
    described = read_definition(store)
    moved_file.refuse(store, described.run_id)
    return described


def read_definition(store: Store) -> Definition:
    """The content of workspace.yaml, also if the run has moved away."""
    try:
        data = store.read(DEFINITION, limit=definition.LIMIT).data
    except FileNotFoundError:
        raise UsageError(
            "is not a workspace",
            path=store.url,
            why=f"it has no {DEFINITION}",
            remedy="`satchel new` makes a workspace; `satchel ls` lists the workspaces under a folder",
        ) from None
    return definition.parse(decode(data, DEFINITION))
