"""Open a store: the kind for a URL, and whether the storage there keeps two writers apart. Some servers ignore the
conditions of a write and answer 200, and some file systems have no locks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from ..base import DEFINITION, NoWorkspace, SatchelError, StorageFailed, UsageError, urls
from .contract import FileChanged, Store
from .disk_store import DiskStore

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
    """The same with a file that was just created with `data`: the store must refuse a second creation. Two requests. If
    it does not refuse, the file is restored before UsageError is raised."""
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
