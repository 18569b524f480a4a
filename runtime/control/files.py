"""The readable files of a run, for programs that show them to others: which there are, and what they contain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...workspace.base import DEFINITION, InvalidFile, UsageError, arguments, check_path
from ...workspace.inspect import define
from ...workspace.people.approvals import FOLDER as APPROVALS
from ...workspace.people.inbox import archive
from ...workspace.secrets import redactor_of
from ...workspace.store import Store
from ...workspace.views import PARTIALS, RECOVERED, STATE, STEPS, TODO
from .place import Place

_FILES = frozenset((DEFINITION, TODO, STATE, "pause.yaml", "messages.jsonl"))
_FOLDERS = frozenset(
    (APPROVALS, archive.FOLDER, "agents", "checkpoints", "outputs", STEPS, PARTIALS, RECOVERED, "conflicts")
)


class RunFile(NamedTuple):
    """A file of a run: its path in the workspace, and its size in bytes."""

    path: str
    bytes: int


def files(place: Place) -> list[RunFile]:
    """What a person reads of a run, by path. Not the code of the agent, nor what only Satchel reads."""
    store = place.store
    store.refresh()
    found = [*_files(store, "")]
    for folder in store.folders(""):
        if folder in _FOLDERS:
            found += _below(store, folder)
    return sorted(found)


def read(place: Place, path: str, limit: int) -> bytes:
    """The content of one of them, without secrets."""
    store = place.store
    check_path(arguments.text("path", path))
    folder = path.rpartition("/")[0]
    store.refresh(folder)
    entry = next((each for each in _files(store, folder) if each.path == path), None)
    if entry is None or (folder and folder.split("/")[0] not in _FOLDERS):
        raise UsageError(
            "is no readable file of this run",
            path=path,
            remedy="name one of the list of its files",
        )
    try:
        data = store.read(path, limit=limit).data
    except InvalidFile as error:
        raise UsageError(
            f"has {entry.bytes:,} bytes, and at most {limit:,} are read at once" if entry.bytes > limit else error.what,
            path=path, remedy="read it in the workspace itself",
        ) from error  # fmt: skip
    return redactor_of(define(store)).file(path, data)


def _files(store: Store, folder: str) -> Iterator[RunFile]:
    for path, size in store.list(folder):
        name = path.rpartition("/")[2]
        if not name.startswith(".") and (folder or name in _FILES):
            yield RunFile(path, size)


def _below(store: Store, folder: str) -> Iterator[RunFile]:
    yield from _files(store, folder)
    for inner in store.folders(folder):
        if not inner.rpartition("/")[2].startswith("."):
            yield from _below(store, inner)
