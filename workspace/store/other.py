"""A workspace anywhere else that fsspec opens: memory, sftp, smb, webdav, Google's and Azure's buckets, ...

fsspec has no conditions, so what others save in the moment between a look and a write is lost, and where names can't be
created exclusively it is advisory that there is one writer. `abilities` says so. Tested with fsspec's memory; that
Google's and Azure's buckets create exclusively was read in gcsfs and adlfs, not tried.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from ..errors import SatchelError, StorageFailed, UsageError
from ..names import check_path
from .contract import Abilities, Content, Exchanged, FileChanged, Sync, Version
from .remote import READ_LIMIT, RemoteStore, missing, moment, taken, too_large
from .view import Known

TEMPORARY = ".satchel/tmp"
_TRIES = 5
_EXCLUSIVE: dict[str, dict[str, Any]] = {
    "gs": {"mode": "create"}, "gcs": {"mode": "create"},
    "az": {"overwrite": False}, "abfs": {"overwrite": False}, "abfss": {"overwrite": False},
}  # fmt: skip
"""What `pipe_file` is told for it to create exclusively, where the service itself sees to it."""

_DRIVERS = {
    "sftp": "paramiko", "ssh": "paramiko", "smb": "smbprotocol", "webdav": "webdav4[fsspec]", "gs": "gcsfs",
    "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs",
}  # fmt: skip
_REMEDY = "check the server and the permissions there, then run `satchel resume`: nothing acknowledged is lost"


class OtherStore(RemoteStore):
    """The `Store` at a URL. Whole files are replaced by a rename where the storage has folders, else by one upload."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None):
        self._protocol = url.partition("://")[0]
        super().__init__(url.rstrip("/"), self._listing)
        self._fs, root = _opened(url, self._protocol, options or {})
        self._root = root.rstrip("/")
        self._one = threading.RLock()  # most drivers have one connection, which is one thread's at a time
        self._renames = self._protocol not in _EXCLUSIVE and _has_rename(self._fs)
        self._made: set[str] = set()  # folders that are there

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            lock=False, exclusive_create=self._protocol in _EXCLUSIVE, conditional_replace=False, append=False,
            notice=False, remote=self._protocol != "memory",
        )  # fmt: skip

    def expect(self, path: str, data: bytes) -> None:
        """No listing tells what the bytes are, so the next `read` is one, whatever is remembered."""
        self._bodies.drop(path)

    def _listing(self, folder: str) -> Iterator[tuple[str, Known]]:
        with self._asking("can't be listed", self._url):
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(f"{self._root}/{folder}" if folder else self._root, detail=True)
            except FileNotFoundError:
                return
        for name, facts in found.items():
            if facts.get("type") == "file" and name.startswith(f"{self._root}/"):
                yield name[len(self._root) + 1 :], _known(facts)

    # Reading

    def read(self, path: str, *, limit: int = READ_LIMIT) -> Content:
        full = self._full(path)
        if kept := self._kept(path, limit):
            return kept
        with self._asking("can't be read", path):
            for _ in range(_TRIES):  # until no one writes between the look and the reading
                known = self._look(path)
                if known is None:
                    raise missing(path)
                if known.size > limit:
                    raise too_large(path, limit)
                data = self._fs.cat_file(full)
                if len(data) == known.size:
                    self._bodies.keep(path, data, known.version)
                    return Content(data, known.version)
        raise StorageFailed("can't be read", path=path, why="it is being changed all the time", remedy=_REMEDY)

    def tail(self, path: str, size: int) -> bytes:
        full = self._full(path)
        with self._asking("can't be read", path):
            known = self._look(path)
            if known is None:
                raise missing(path)
            size = min(size, known.size)
            return bytes(self._fs.cat_file(full, start=known.size - size, end=known.size)) if size else b""

    def _look(self, path: str) -> Known | None:
        """One file, as it is now; the view is told."""
        with self._asking("can't be looked at", path), self._view.look() as since:
            self._fs.invalidate_cache()
            try:
                facts = self._fs.info(self._full(path))
            except (FileNotFoundError, NotADirectoryError):
                facts = {}
            known = _known(facts) if facts.get("type") == "file" else None
            self._view.seen(path, known, since)
        return known

    # Writing

    def replace(self, path: str, data: bytes, *, sync: Sync = "all", if_version: Version | None = None) -> Version:
        with self._asking("can't be written", path):
            if if_version is not None:
                self._expect_version(path, if_version)
            return self._put(path, data)

    def exchange(self, path: str, data: bytes, *, if_version: Version | None) -> Exchanged:
        with self._asking("can't be written", path):
            self._expect_version(path, if_version)
            return Exchanged(self._put(path, data), None)

    def _expect_version(self, path: str, version: Version | None) -> None:
        known = self._look(path)
        if (known.version if known else None) != version:
            raise FileChanged(path)

    def _put(self, path: str, data: bytes) -> Version:
        full = self._full(path)
        if self._renames:
            try:
                self._put_aside_and_move(path, data)
            except FileNotFoundError:  # another process has removed an empty folder
                self._made.clear()
                self._put_aside_and_move(path, data)
        else:
            self._fs.pipe_file(full, data)
        self._fs.invalidate_cache()
        return self._wrote(path, data, _known(self._fs.info(full)).version)

    def _put_aside_and_move(self, path: str, data: bytes) -> None:
        temporary = f"{TEMPORARY}/{uuid4().hex}"
        try:
            self._make_folder(TEMPORARY)
            self._fs.pipe_file(self._full(temporary), data)
            self._move(temporary, path)
        except BaseException:
            with suppress(Exception):
                self._fs.rm_file(self._full(temporary))
            raise

    def _move(self, path: str, to: str) -> None:
        """Some rename only to names that are free. A crash between the two calls then leaves only the temporary."""
        self._make_folder(os.path.dirname(to))
        source, target = self._full(path), self._full(to)
        try:
            self._fs.mv(source, target)
        except OSError:
            if not self._fs.exists(source) or not self._fs.exists(target):
                raise
            self._fs.rm_file(target)
            self._fs.mv(source, target)

    def create(self, path: str, data: bytes) -> None:
        """Of several at once, more than one may win where `abilities.exclusive_create` is False."""
        full = self._full(path)
        with self._asking("can't be written", path):
            if not self.abilities.exclusive_create:
                if self._look(path):
                    raise taken(path)
                self._put(path, data)
                return
            try:
                self._fs.pipe_file(full, data, **_EXCLUSIVE[self._protocol])
            except Exception as error:
                if isinstance(error, FileExistsError) or type(error).__name__ == "ResourceExistsError":
                    raise taken(path) from None
                raise
            self._fs.invalidate_cache()
            self._wrote(path, data, _known(self._fs.info(full)).version)

    def append(self, path: str, data: bytes, *, durable: bool = False) -> None:
        """Read, add, replace."""
        with self._asking("can't be appended to", path):
            try:
                old = self.read(path).data
            except FileNotFoundError:
                old = None
            if old is None or data:
                self._put(path, (old or b"") + data)

    def rename(self, path: str, to: str) -> None:
        source, target = self._full(path), self._full(to)
        with self._asking("can't be moved", path):
            if self._look(path) is None:
                raise missing(path)
            if self._renames:
                self._move(path, to)
                self._view.wrote(path, None)
            else:
                self._fs.cp_file(source, target)
                self.remove(path)
            self._fs.invalidate_cache()
            self._view.wrote(to, _known(self._fs.info(target)))

    def remove(self, path: str) -> None:
        full = self._full(path)
        with self._asking("can't be removed", path):
            with suppress(FileNotFoundError, NotADirectoryError):
                self._fs.rm_file(full)
            if self._renames:
                self._remove_empty(os.path.dirname(path))
            self._view.wrote(path, None)

    def remove_many(self, paths: Sequence[str]) -> None:
        for path in [check_path(each) for each in paths]:
            self.remove(path)

    def _remove_empty(self, folder: str) -> None:
        while folder:
            try:
                self._fs.rmdir(self._full(folder))
            except Exception:  # not empty, or not there; each driver has its own error for that
                break
            self._made.discard(folder)
            folder = os.path.dirname(folder)

    def _make_folder(self, folder: str) -> None:
        if self._renames and folder not in self._made:
            self._fs.makedirs(self._full(folder) if folder else self._root, exist_ok=True)
            self._made.add(folder)

    def _full(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    @contextmanager
    def _asking(self, what: str, path: str) -> Iterator[None]:
        """The driver's errors are of any kind, and may quote what nobody should read: only their kind is told."""
        with self._one:
            try:
                yield
            except (FileNotFoundError, FileExistsError, FileChanged, SatchelError):
                raise
            except NotADirectoryError:
                raise missing(path) from None
            except Exception as error:
                self._view.forget(path)
                raise StorageFailed(what, path=path, why=_kind(error), remedy=_REMEDY) from None


def _opened(url: str, protocol: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
        from fsspec.registry import get_filesystem_class  # type: ignore[import-untyped]

        get_filesystem_class(protocol)
    except ImportError:
        driver = _DRIVERS.get(protocol)
        raise UsageError(
            f"{protocol}:// needs a package that is not installed", path=url,
            remedy=f"`pip install '{driver}'`" if driver else f"install fsspec's driver for {protocol}",
        ) from None  # fmt: skip
    except ValueError:
        raise UsageError(
            f"fsspec knows no {protocol}://", path=url, remedy="if a package brings it, `pip install` that"
        ) from None
    try:
        files, root = url_to_fs(url, skip_instance_cache=True, **options)
    except (TypeError, ValueError, KeyError) as error:
        raise UsageError(
            "can't be opened with these settings", path=url, why=_kind(error), remedy="check the URL and the options"
        ) from None
    except Exception as error:
        raise StorageFailed("can't be opened", path=url, why=_kind(error), remedy=_REMEDY) from None
    return files, str(root)


def _has_rename(files: Any) -> bool:
    """Whether moving a file is more than a copy: then a file is whole before it has its name."""
    from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

    mine: Callable[..., object] = type(files).mv
    return mine is not AbstractFileSystem.mv


def _known(facts: Mapping[str, Any]) -> Known:
    tag = next((facts[name] for name in ("etag", "ETag", "generation", "md5Hash") if facts.get(name)), None)
    at = next((facts[name] for name in ("mtime", "modified", "LastModified", "last_modified", "updated", "created",
                                        "last_write_time") if facts.get(name)), None)  # fmt: skip
    size = int(facts.get("size") or 0)
    if isinstance(at, int | float):  # some drivers give one in listings and the other for one file
        at = datetime.fromtimestamp(at, UTC)
    elif isinstance(at, datetime) and at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    when = moment(at) if isinstance(at, datetime) else ""
    return Known(str(tag) if tag else f"{at}-{size}", size, when)


def _kind(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
