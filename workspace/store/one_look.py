"""A folder of a disk as one look sees it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from .contract import Entry, Store, Version
from .disk_store import DiskStore, version_of
from .syscalls import Syscalls


class ListedDisk(DiskStore):
    """For reading only: each folder is listed once, until `refresh`, as in a bucket. A look at a run asks ten times for
    what these lists show, and thousands of runs are looked at."""

    def __init__(self, root: str, syscalls: Syscalls | None = None):
        """`root` is an absolute path without links."""
        self._os, self._root = syscalls or Syscalls(), root
        self._folders = {}
        self._lists: dict[str, dict[str, os.stat_result]] = {}
        self._entries: dict[str, list[Entry]] = {}

    def refresh(self, folder: str = "") -> None:
        for known in (self._lists, self._entries, self._folders):
            known.clear()

    def version(self, path: str) -> Version | None:
        folder, _, name = path.rpartition("/")
        if folder and folder not in self._lists:
            return super().version(path)
        status = self._scan(folder).get(name)
        return version_of(status) if status else super().version(path)  # the disk may know it by another case

    def list(self, folder: str) -> Iterator[Entry]:
        found = self._entries.get(folder)
        if found is None:
            found = self._entries[folder] = [*super().list(folder)]
        return iter(found)

    def facts(self, folder: str) -> dict[str, os.stat_result]:
        """What is directly in a folder, by name."""
        return self._scan(folder)

    def _scan(self, folder: str) -> dict[str, os.stat_result]:
        found = self._lists.get(folder)
        if found is None:
            found = self._lists[folder] = super()._scan(folder)
        return found

    def _check_folder(self, folder: str) -> None:
        if folder in self._folders:
            return
        above, _, name = folder.rpartition("/")
        status = self._scan(above).get(name) if folder else None
        if status is None or not stat.S_ISDIR(status.st_mode):
            super()._check_folder(folder)
        self._folders[folder] = False  # it need not be looked at again


def listed(store: Store) -> Store:
    """The same files for one look, where reading is no request."""
    if isinstance(store, ListedDisk):
        return store
    return ListedDisk(store.url, store._os) if isinstance(store, DiskStore) else store
