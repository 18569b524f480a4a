"""Runs below a folder or URL by their names, for requests that name one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ...workspace.base import DEFINITION, is_name, urls
from ...workspace.inspect import transfer_file
from ...workspace.store import Store, open_store, read_if_there
from .handle import Handle
from .opening import PATIENCE, root_of


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


_PATHS = (DEFINITION, transfer_file.MOVED)


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
