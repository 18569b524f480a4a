"""Find the workspace that a person or a program has named, or the run of a name below a folder or URL."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ...workspace.base import DEFINITION, UsageError, arguments, check_new, is_name, urls
from ...workspace.inspect import below, below_store, transfer_file
from ...workspace.store import Store, open_store, read_if_there
from ..status import PATIENCE, reach, root_of, use_options
from .handle import Handle

_PATHS = (DEFINITION, transfer_file.MOVED)


def open(
    url: str | os.PathLike[str] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] | None = None,
    patience: float | None = PATIENCE,
) -> Handle:
    """A handle on the workspace at `url`: a folder, or a URL such as `s3://bucket/runs/my-run`; None is the current
    folder.

    Changes nothing, takes no lock and runs no code. Sends one request to a bucket, so that wrong credentials are
    reported now. `storage_options`: options of the storage with the names of fsspec. They are merged into the
    environment variable of the protocol (`FSSPEC_S3`), so they hold for this process and those it starts. `tell` is
    called with a line of text for people while a method runs, such as what it waits for. `patience`: seconds during
    which a request to a bucket is repeated; None: as long as a run would, and then no request is sent yet.

    Raises UsageError for what can't be a workspace, and StorageFailed if a bucket does not answer. Not guaranteed: that
    there is a workspace. The first method that needs workspace.yaml reports that it is missing.
    """
    arguments.function("tell", tell)
    if url is None:
        use_options(".", storage_options)
        if not os.path.isfile(DEFINITION) and not os.path.isfile(transfer_file.MOVED):
            raise UsageError(
                "the current folder is not a workspace",
                why=f"it has no {DEFINITION}",
                remedy="name a workspace; `satchel ls` lists them",
            )
        return Handle(open_store("."), "", tell)
    typed = arguments.place("url", url)
    if os.path.isfile(typed):
        folder = os.path.dirname(typed) or "."
        remedy = f"name its folder: {shlex.quote(folder)}" if os.path.basename(typed) == DEFINITION else None
        raise UsageError("is a file, and a workspace is a folder", path=typed, remedy=remedy)
    if patience is None:
        use_options(urls.checked(typed), storage_options)
        return Handle(open_store(urls.checked(typed)), typed, tell, is_patient=True)
    return Handle(reach(typed, storage_options, arguments.seconds("patience", patience)), typed, tell)


def open_all(
    root: str | os.PathLike[str] = ".",
    *,
    storage_options: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] | None = None,
) -> list[Handle]:
    """Handles on the workspaces below `root`, a folder or URL, at any depth, by name. See `open` for the arguments.

    Skips hidden folders, links, and folders inside a workspace. A folder that can't be read is included, since it may
    hold a run; its first method call says why. UsageError if `root` is no folder. Not guaranteed: workspaces that are
    made or removed meanwhile.
    """
    arguments.function("tell", tell)
    typed = arguments.place("root", root)
    store = root_of(typed, storage_options)
    if store is None:
        folders = below(typed)
        return [Handle(open_store(folder), folder, tell, was_found=True) for folder in folders]
    return [Handle(each, each.url, tell, was_found=True) for each in below_store(store)]


class Below:
    """The runs below `root`, a folder or URL. Each goes by its path below it; a root that is a run itself goes by the
    name of its folder. What `open_all` would not find is not found here either, so no name leads out of the root."""

    def __init__(self, root: str, storage_options: Mapping[str, Any] | None = None):
        """UsageError if it is neither a folder nor a URL."""
        self._store = root_of(root, storage_options)
        self._root = os.path.realpath(root) if self._store is None else self._store.url
        self._in_bucket = lru_cache(256)(self._opened)

    def find(self, name: str) -> Handle | None:
        """A handle on the run, or on the place that it has left; None if there is none of this name. Lists nothing, so
        that the cost does not depend on the number of runs."""
        parts = name.split("/")
        if not leads_below(name, is_remote=self._store is not None):
            return None
        if self._store is None:
            return self._on_disk(parts)
        handle = self._in_bucket(*parts)
        return handle if handle is not None and _has_run(handle.store) else None

    def _on_disk(self, parts: list[str]) -> Handle | None:
        if _is_run(self._root):
            return _handle(open_store(self._root)) if parts == [os.path.basename(self._root)] else None
        place = self._root
        for number, part in enumerate(parts, 1):
            place = os.path.join(place, part)
            if os.path.islink(place):
                return None
            if _is_run(place):
                return _handle(open_store(place)) if number == len(parts) else None
        return None

    def _opened(self, *parts: str) -> Handle | None:
        """Kept for later requests, with its connections."""
        if _has_run(_at(self._root)):
            return _handle(_at(self._root)) if [*parts] == [self._root.rpartition("/")[2]] else None
        *above, place = [urls.join(self._root, "/".join(parts[:number])) for number in range(1, len(parts) + 1)]
        return None if any(_has_run(_at(each)) for each in above) else _handle(_at(place))


def leads_below(name: str, *, is_remote: bool) -> bool:
    """Whether a run below a root may have this name. On a disk any folder may be one that is not hidden, also with a
    name that other systems forbid: `satchel ls` shows it."""
    if is_remote:
        return all(is_name(part) and not part.startswith(".") for part in name.split("/"))
    return "\0" not in name and all(part and not part.startswith(".") for part in name.split("/"))


def new_place(root: str, name: str, *, again: bool = False) -> str:
    """The folder or URL of a new run that is to have this name below `root`, which is a real path or a URL. UsageError
    if none can be there: what is there already stays as it is. `again`: a run may be there that who makes it knows."""
    parts, is_remote = name.split("/"), urls.is_remote(root)
    if not leads_below(name, is_remote=is_remote) or not all(is_name(part) and part != "-" for part in parts):
        raise UsageError(
            "that is no name of a run",
            why="it becomes a folder below the root",
            remedy="use letters, digits, - and _; folders in it are joined by /, and none begins with a point",
        )
    check_new(name)
    place = root
    for depth, part in enumerate(("", *parts)):
        if part:
            place = urls.join(place, part) if is_remote else os.path.join(place, part)
        if is_run(place) and not (again and depth == len(parts)):
            raise UsageError("there is a run already", path=place, remedy="choose another name")
        if not is_remote and os.path.lexists(place) and ((part and os.path.islink(place)) or not os.path.isdir(place)):
            raise UsageError("is no folder", path=place, remedy="choose another name")
    return place


def is_run(place: str) -> bool:
    """Whether a run is at a path or URL, or was there before it moved."""
    return _has_run(_at(place)) if urls.is_remote(place) else _is_run(place)


def _is_run(folder: str) -> bool:
    return any(os.path.isfile(os.path.join(folder, path)) for path in _PATHS)


def _has_run(store: Store) -> bool:
    return any(read_if_there(store, path) is not None for path in _PATHS)


def _at(place: str) -> Store:
    return open_store(place, patience=PATIENCE)


def _handle(store: Store) -> Handle:
    return Handle(store, store.url)
