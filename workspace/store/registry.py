"""Open a store: the kind for a URL, the same for one look, and whether the storage there keeps two writers apart. Some
servers ignore the conditions of a write and answer 200, and some file systems have no locks.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from ..base import DEFINITION, NoWorkspace, SatchelError, StorageFailed, UsageError, urls
from .contract import Entry, FileChanged, Store, Version
from .disk_store import DiskStore, version_of
from .syscalls import Syscalls

_S3 = ("s3", "s3a")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def open_store(url: str, storage_options: Mapping[str, Any] | None = None, *, patience: float | None = None) -> Store:
    """The store of a workspace at a path or `file://`, `s3://bucket/prefix`, or any URL that fsspec knows. UsageError
    if there is no such folder, or if the URL can't be one of a workspace.

    `storage_options` are fsspec's for that kind of URL; the variables FSSPEC_* and AWS_* need not be repeated.
    `patience`: seconds during which a request to a bucket is repeated, if not as long as in a run.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme in ("file", "local"):
        return _folder(url)
    user, at, _ = rest.split("/", 1)[0].rpartition("@")
    if at and (":" in user or scheme in _S3):  # else it is a user's name, or a container's of Azure
        raise UsageError(
            "a URL with credentials in it",
            path=f"{scheme}://...@...",
            why="files and screens would show it",
            remedy="give them as storage options, as a profile, or in the environment",
        )
    if "::" in url or "?" in url:
        raise UsageError("not a place for files", path=scheme + "://...", remedy="use PROTOCOL://HOST/PATH")
    if scheme in _S3:
        from .bucket import BucketStore  # slow imports come with it
        from .s3 import PATIENCE

        bucket, _, prefix = rest.partition("/")
        if not _BUCKET.fullmatch(bucket):
            raise UsageError("not a bucket's name", path=url, remedy="use s3://bucket/prefix")
        patience = PATIENCE if patience is None else patience
        return BucketStore(bucket, prefix.removesuffix("/"), storage_options, patience=patience)
    from .fsspec_store import OtherStore

    return OtherStore(url, storage_options)


def _folder(url: str) -> DiskStore:
    folder = urls.local(url)
    if not os.path.isdir(folder):
        raise NoWorkspace("no such folder", path=url, remedy="`satchel new` makes a workspace")
    return DiskStore(folder)


class ListedDisk(DiskStore):
    """A folder of a disk, for reading only: each folder in it is listed once, until `refresh`, as in a bucket. A look
    at a run asks ten times for what these lists show, and thousands of runs are looked at."""

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
    """The files of a store for one look: each folder is listed once, where reading is no request."""
    if isinstance(store, ListedDisk):
        return store
    return ListedDisk(store.url, store._os) if isinstance(store, DiskStore) else store


PROBE = ".satchel/probe-"


def check_lock(store: Store) -> None:
    """StorageFailed if files can't be locked there. Tries workspace.yaml, which no process locks and which is not
    changed; in a folder without one, a file that is removed again."""
    if store.version(DEFINITION) is not None:
        store.try_lock(DEFINITION)
        return
    path = f"{PROBE}{uuid4().hex[:12]}"
    store.create(path, b"")
    try:
        store.try_lock(path)
    finally:
        store.remove(path)


def check_writes(store: Store) -> None:
    """StorageFailed if a file can't be written there, or does not come back as it was written. It is removed again."""
    path = f"{PROBE}{uuid4().hex[:12]}"
    store.create(path, data := uuid4().hex.encode())
    store.refresh(".satchel")
    read = store.read(path).data if store.version(path) is not None else None
    store.remove(path)
    if read != data:
        raise StorageFailed(
            "can't be used",
            path=store.url,
            why="a file that was just written is missing there" if read is None else "a file changed on its way",
            remedy="use a storage that gives back what was written",
        )


def check_conditional_puts(store: Store) -> None:
    """Write a small file under conditions that are true and others that are false. UsageError if the store does not
    distinguish them. About seven requests; the file is removed again. A store that can only create conditionally is
    tried with that."""
    path = f"{PROBE}{uuid4().hex[:12]}"  # of its own: others may be trying at the same moment
    store.create(path, b"first")
    try:
        check_exclusive(store, path, b"first")
        if store.abilities.conditional_replace:
            _try(store, path)
    except SatchelError:
        with suppress(SatchelError):  # the first of two is the cause
            store.remove(path)
        raise
    store.remove(path)


def _try(store: Store, path: str) -> None:
    version = store.version(path) or ""
    try:
        store.replace(path, b"third", if_version=version)
    except FileChanged:
        raise _unfit(store, "it refused a PUT with `If-Match` although the condition held") from None
    with suppress(FileChanged):
        store.replace(path, b"fourth", if_version=f'"{"0" * 32}"')
        raise _unfit(store, "it obeyed a PUT with `If-Match` although the condition did not hold")
    if store.read(path).data != b"third":
        raise _unfit(store, "it refused a PUT with `If-Match` and did it all the same")


def check_exclusive(store: Store, path: str, data: bytes) -> None:
    """UsageError if the store does not refuse a second creation of a file that was just created with `data`. Two
    requests. If it does not refuse, the file is restored before UsageError is raised."""
    try:
        store.create(path, b"second " + uuid4().hex.encode())
    except FileExistsError:
        return
    store.replace(path, data)
    raise _unfit(store, "it obeyed a PUT with `If-None-Match: *` although the name was taken")


def _unfit(store: Store, why: str) -> UsageError:
    return UsageError(
        f"{getattr(store, 'server', 'the storage')} can't keep two writers apart",
        path=store.url,
        why=why,
        remedy="use a server that answers 412 to a PUT whose `If-None-Match: *` or `If-Match` does not hold (AWS S3 "
        "does, SeaweedFS since 4.48), or a folder of a disk",
    )
