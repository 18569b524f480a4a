"""URLs of workspaces: recognise them, check them before anything is opened, and join them. Text only: opens nothing."""

from __future__ import annotations

import os
import posixpath
import re

from ...schemas import nearest
from .errors import UsageError
from .names import DEFINITION, is_name

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.:-]*)://(.*)", re.DOTALL)
_NEARLY = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(:/|:|//)([^/].*)?", re.DOTALL)
_BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci", "r2")
"""Protocols whose first part names a bucket."""
_LOCAL = ("file://", "local://")
_COMMON = (*_BUCKETS, "file", "memory", "smb", "sftp", "ssh", "webdav", "http", "https", "ftp", "hdfs", "dropbox")


def is_remote(place: str) -> bool:
    """Whether it is a URL, and not a path in any form."""
    return _URL.match(place) is not None and not place.startswith(_LOCAL)


def protocol(url: str) -> str:
    """The part before `://`; of a chain (`simplecache::s3://`) the last."""
    found = _URL.match(url)
    return found[1].rpartition("::")[2] if found else ""


def local(path: str) -> str:
    """A path in the form for system calls. The only place where `~` becomes the home folder."""
    return os.path.expanduser(path.removeprefix("file://").removeprefix("local://"))


def checked(place: str) -> str:
    """A path, or a URL without a `/` at its end, in the form that is compared and joined. UsageError for a mistyped
    one."""
    found = _URL.match(place)
    if found is None:
        _check_path(place)
        return place
    scheme, rest = protocol(place), found[2]
    if scheme != scheme.lower():
        raise UsageError(
            "a protocol must be in lower case",
            path=place if "@" not in rest else None,
            remedy=f"write {scheme.lower()}://...",
        )
    if not is_remote(place):
        return place
    netloc, _, path = rest.partition("/")
    if ":" in netloc.rpartition("@")[0]:
        raise UsageError(
            f"the {scheme}:// URL contains a password",
            why="logs and the process list would show it",
            remedy="give it as `--storage-option NAME=VALUE` (`storage_options` in Python), or in the environment",
        )
    if scheme in _BUCKETS and not netloc:
        raise UsageError("the URL names no bucket", path=place, remedy=f"as in {scheme}://bucket/my-run")
    parts = path.rstrip("/").split("/") if path.strip("/") else []
    if scheme in _BUCKETS and not all(map(is_name, parts)):
        raise UsageError(
            "can't hold a workspace",
            path=place,
            why="a part of the path is empty, is `..`, or is not a valid name on every system",
            remedy=f"as in {scheme}://bucket/runs/my-run",
        )
    if parts and parts[-1] == DEFINITION:
        folder = place.rstrip("/").removesuffix(f"/{DEFINITION}")
        raise UsageError("is a file, and a workspace is a folder", path=place, remedy=f"name its folder: {folder}")
    return place.rstrip("/") if rest.strip("/") else place


def _check_path(path: str) -> None:
    """`s3:/bucket` is not meant as a path, unless it exists."""
    nearly = _NEARLY.fullmatch(path)
    if nearly is None or os.path.exists(path):
        return
    scheme, mark, rest = nearly[1], nearly[2], nearly[3] or ""
    if mark == ":/" or scheme.lower() in _COMMON:
        raise UsageError(
            "is neither a folder nor a URL",
            path=path,
            remedy=f"a URL has a colon and two slashes: {scheme.lower()}://{rest}",
        )


def check_text(place: str) -> None:
    """UsageError for a folder of the disk whose name is not text, because records and readable files can't name it."""
    try:
        place.encode()
    except UnicodeEncodeError:
        raise UsageError(
            "is in a folder whose name is not text",
            path=place,
            why="a part of the path is not UTF-8",
            remedy="rename that folder",
        ) from None


def check_protocol(url: str) -> None:
    """UsageError if nothing here opens such URLs. Slow: it asks fsspec, unless it is a protocol that is known here."""
    scheme = protocol(url)
    if scheme in ("s3", "s3a", "memory"):
        return
    import fsspec  # type: ignore[import-untyped]

    known = fsspec.available_protocols()
    if scheme not in known:
        close = nearest(scheme, known) or nearest(scheme, _COMMON) or ("s3" if scheme[:1] == "s" else None)
        raise UsageError(
            f"there is no protocol {scheme!r}",
            path=url,
            remedy=f"did you mean {close}://?" if close else "use a path, s3://, or a protocol that fsspec supports",
        )


def join(place: str, path: str) -> str:
    """The place of `path` in a folder: like `os.path.join`, also for URLs."""
    return f"{place.rstrip('/')}/{path}" if is_remote(place) else os.path.join(place, path)


def resolve(base: str, reference: str) -> str:
    """Where a reference in the workspace `base` leads: a URL, or a path of this machine, possibly relative to it."""
    if is_remote(reference):
        return reference
    full = local(reference)
    if not is_remote(base) or os.path.isabs(full):
        return os.path.join(base, full)
    scheme, _, rest = base.partition("://")
    netloc, _, path = rest.partition("/")
    found = posixpath.normpath(posixpath.join(path, full))
    if found.split("/")[0] == "..":
        raise UsageError(
            "points outside the bucket", path=reference, remedy="name a place in the bucket, or a whole URL"
        )
    return f"{scheme}://{netloc}" if found == "." else f"{scheme}://{netloc}/{found}"
