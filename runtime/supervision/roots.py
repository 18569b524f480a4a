"""Where workspaces are looked for: below a folder, or below a URL, of which one listing tells it all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from ...workspace import lease
from ...workspace.approvals import FOLDER as APPROVALS
from ...workspace.archive import FOLDER as INBOX
from ...workspace.below import below, below_store
from ...workspace.store import Store, Version, open_store

_SILENCE = 30.0
"""Seconds after which a lease that nobody renews is left over."""

_LOOKED_AT = ("", APPROVALS, INBOX, "journal")

Signature = tuple[tuple[str | int | None, ...], ...]
"""What a person or a program may have changed: equal as long as nobody has."""


class Root(Protocol):
    every: float
    """Seconds between two looks."""

    aside: bool
    """A look takes its time, and whoever takes it does so in a thread."""

    def folders(self) -> Iterator[tuple[str, str]]:
        """A new look: each workspace's own place, and as it is told."""

    def refresh(self) -> None:
        """From now on signatures and stores tell how it is now."""

    def store(self, folder: str) -> Store:
        """To look at one of them. UsageError if it has just been removed."""

    def signature(self, folder: str) -> Signature: ...

    def is_renewed(self, folder: str) -> bool | None:
        """Whether somebody renews its lease, where no lock can be looked at. None: that can't be told yet."""


class FolderRoot:
    """A folder of a disk."""

    every, aside = 1.0, False

    def __init__(self, root: str):
        self._root = root

    def folders(self) -> Iterator[tuple[str, str]]:
        return ((os.path.realpath(folder), folder) for folder in below(self._root))

    def refresh(self) -> None: ...

    def store(self, folder: str) -> Store:
        return open_store(folder)

    def signature(self, folder: str) -> Signature:
        found = []
        place = os.path.realpath(folder)
        for part in _parts(lambda part: _folders(place, part)):
            with suppress(OSError), os.scandir(os.path.join(place, part)) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if entry.is_file(follow_symlinks=False):
                        found.append((f"{part}/{entry.name}", status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(sorted(found))

    def is_renewed(self, folder: str) -> bool | None:
        return False


class UrlRoot:
    """A store that holds workspaces. `folders` takes a new listing, and the rest answers from it."""

    every, aside = 4.0, True

    def __init__(self, store: Store):
        self._root = store
        self._found: dict[str, Store] = {}
        self._leases: dict[str, _Watched] = {}

    def folders(self) -> Iterator[tuple[str, str]]:
        self.refresh()
        self._found = {store.url: store for store in below_store(self._root)}
        for url, store in self._found.items():
            self._watch(url, store)
            yield url, url

    def refresh(self) -> None:
        self._root.refresh()

    def store(self, folder: str) -> Store:
        return self._found[folder]

    def signature(self, folder: str) -> Signature:
        """Empty once it is gone."""
        store = self._found.get(folder)
        parts = _parts(store.folders) if store else ()
        return tuple((entry.path, store.version(entry.path)) for part in parts if store for entry in store.list(part))

    def is_renewed(self, folder: str) -> bool | None:
        watched = self._leases.get(folder)
        if watched is None or watched.version is None or time.monotonic() >= watched.since + _SILENCE:
            return False
        return True if watched.has_changed else None

    def _watch(self, url: str, store: Store) -> None:
        version, before = store.version(lease.PATH), self._leases.get(url)
        if before is None or version != before.version:
            self._leases[url] = _Watched(version, time.monotonic(), before is not None)


def _parts(folders_in: Callable[[str], Iterable[str]]) -> Iterator[str]:
    """The folders of a workspace whose files tell what people have done, those of its sub-agents too."""
    yield from _LOOKED_AT
    left = ["agents"]
    while left:
        for agent in folders_in(left.pop()):
            yield agent
            left.append(f"{agent}/agents")


def _folders(place: str, part: str) -> list[str]:
    with suppress(OSError), os.scandir(os.path.join(place, part)) as entries:
        return [f"{part}/{entry.name}" for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []


class _Watched:
    """A lease as it was last seen to change."""

    def __init__(self, version: Version | None, since: float, has_changed: bool):
        self.version, self.since, self.has_changed = version, since, has_changed
