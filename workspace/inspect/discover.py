"""The workspaces below a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..base import DEFINITION, SatchelError
from ..store import DiskStore, Part, Store
from . import moved_file


def below(root: str, *, with_moved: bool = False) -> Iterator[str]:
    """Folders with a workspace.yaml, by name. Folders inside a workspace and hidden folders are skipped, and links are
    not followed. `with_moved`: also places that a run has left.

    A folder that can't be read may hold a run, so it is included: the error of the first look says why.
    """
    refused: list[OSError] = []
    for folder, inside, files in os.walk(root, onerror=refused.append):
        is_moved = with_moved and moved_file.PATH in files and _has_moved(DiskStore(folder))
        if DEFINITION in files or is_moved:
            inside.clear()
            yield os.path.normpath(folder)
        inside[:] = sorted(name for name in inside if not name.startswith("."))
    for error in refused:
        if isinstance(error, PermissionError):
            yield os.path.normpath(error.filename)


def below_store(root: Store, *, with_moved: bool = False) -> Iterator[Store]:
    """The same for a store that holds workspaces, or is one. All use one listing, that of `root`, until one of them
    makes a new listing of its own files."""
    for folder in _inside(root, "", with_moved):
        yield Part(root, folder)


def _inside(root: Store, folder: str, with_moved: bool) -> Iterator[str]:
    above = f"{folder}/" if folder else ""
    is_workspace = root.version(above + DEFINITION) is not None
    if not is_workspace and with_moved and root.version(above + moved_file.PATH) is not None:
        is_workspace = _has_moved(Part(root, folder))
    if is_workspace:
        yield folder
        return
    for inner in root.folders(folder):
        if not inner.rpartition("/")[2].startswith("."):
            yield from _inside(root, inner, with_moved)


def _has_moved(store: Store) -> bool:
    try:
        return moved_file.read(store) is not None
    except SatchelError:
        return True  # part of a run is here, and a look at it reports the error
