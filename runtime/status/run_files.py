"""The readable files of a run, for programs that show them to others: which there are, and what they contain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...workspace.base import DEFINITION, InvalidFile, UsageError, arguments, check_path, is_name
from ...workspace.inbound.approvals import FOLDER as APPROVALS
from ...workspace.inbound.inbox import archive
from ...workspace.inspect import define
from ...workspace.secrets import redactor_of
from ...workspace.store import Store
from ...workspace.views import PARTIALS, RECOVERED, STATE, STEPS, TODO
from .place import Place

_FILES = frozenset((DEFINITION, TODO, STATE, "pause.yaml", "messages.jsonl"))
_FOLDERS = frozenset(
    (APPROVALS, archive.FOLDER, "agents", "checkpoints", "outputs", STEPS, PARTIALS, RECOVERED, "conflicts")
)

_REFUSED = re.compile(r"[^/]+\.rejected(-[0-9]+)?(\.[^/]*)?")
"""A version of a file that was not taken, or the reasons."""


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


def is_readable(path: str) -> bool:
    """Whether a file of this path would be one of them. Looks only at the text."""
    parts = path.split("/")
    if not all(is_name(part) and not part.startswith(".") for part in parts):
        return False
    if len(parts) == 1:
        return path in _FILES or _REFUSED.fullmatch(path) is not None
    return parts[0] in _FOLDERS


def read(place: Place, path: str, limit: int) -> bytes:
    """The content of one of them, without secrets."""
    store = place.store
    check_path(arguments.text("path", path))
    folder = path.rpartition("/")[0]
    store.refresh(folder)
    size = next((each.size for each in store.list(folder) if each.path == path), None) if is_readable(path) else None
    if size is None or _leads_through_a_link(store, folder):
        raise UsageError("is no readable file of this run", path=path, remedy="name one of the list of its files")
    try:
        data = store.read(path, limit=limit).data
    except InvalidFile as error:
        found = error.problems[0].found
        raise UsageError(
            f"has {size:,} bytes, and at most {limit:,} are read at once" if size > limit else f"is {found}",
            path=path,
            remedy="read it in the workspace itself",
        ) from error
    return redactor_of(define(store)).file(path, data)


def _leads_through_a_link(store: Store, folder: str) -> bool:
    """A link to another folder of the workspace would lead to what is not readable, such as the code. Only a disk has
    links that a store follows."""
    if store.abilities.remote:
        return False
    while folder:
        above = folder.rpartition("/")[0]
        if folder not in store.folders(above):
            return True
        folder = above
    return False


def _files(store: Store, folder: str) -> Iterator[RunFile]:
    for path, size in store.list(folder):
        if is_readable(path):
            yield RunFile(path, size)


def _below(store: Store, folder: str) -> Iterator[RunFile]:
    yield from _files(store, folder)
    for inner in store.folders(folder):
        if not inner.rpartition("/")[2].startswith("."):
            yield from _below(store, inner)
