"""The kind of store for a URL."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ..base import UsageError, urls
from .contract import Store
from .disk.store import DiskStore

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
        from .remote.bucket import BucketStore  # slow imports come with it
        from .remote.s3 import PATIENCE

        bucket, _, prefix = rest.partition("/")
        if not _BUCKET.fullmatch(bucket):
            raise UsageError("not a bucket's name", path=url, remedy="use s3://bucket/prefix")
        patience = PATIENCE if patience is None else patience
        return BucketStore(bucket, prefix.removesuffix("/"), storage_options, patience=patience)
    from .remote.fsspec_store import OtherStore

    return OtherStore(url, storage_options)


def _folder(url: str) -> DiskStore:
    folder = urls.local(url)
    if not os.path.isdir(folder):
        raise UsageError("no such folder", path=url, remedy="`satchel new` makes a workspace")
    return DiskStore(folder)
