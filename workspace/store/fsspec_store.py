"""A workspace on any other storage of fsspec: memory, sftp, smb, webdav, Google's and Azure's buckets, ...

fsspec has no conditions, so a save of others between a look and a write is lost. Where names can't be created
exclusively, one-writer safety is advisory; `abilities` says so. If a server tells only the size of a file and a time in
whole seconds, as sftp does, a save of the same size in the same second is not seen. Tested with fsspec's memory, a
WebDAV and an sftp server, and with emulators of Google's and Azure's buckets, which create exclusively.

`Driver` hides how fsspec's drivers differ: in their packages, how they rename and create, and their errors.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from ..base import NAME_BYTES, SatchelError, StorageFailed, UsageError, check_path
from .contract import READ_LIMIT, Abilities, Exchanged, FileChanged, FileContent, Sync, Version
from .disk_store import DISPLACED, displaced_name
from .remote_store import ListedFile, RemoteStore, missing, moment, taken, too_large

TEMPORARY = ".satchel/tmp"
_TRIES = 5


class OtherStore(RemoteStore):
    """The `Store` at a URL. Whole files are replaced by a rename where the storage has folders, else by one upload."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None):
        super().__init__(url.rstrip("/"), self._listing)
        self._fs = Driver(url, url.partition("://")[0], options or {})
        self._root = self._fs.root
        self._one = threading.RLock()  # most drivers have one connection, for one thread at a time
        self._made: set[str] = set()  # folders that are there

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            lock=False,
            exclusive_create=self._fs.exclusive is not None,
            conditional_replace=False,
            append=False,
            notice=False,
            remote=not self.url.startswith("memory:"),
        )

    def expect(self, path: str, data: bytes) -> None:
        """A listing does not show the bytes, so the next `read` is a request, whatever is cached."""
        self._bodies.drop(path)

    def _listing(self, folder: str) -> Iterator[tuple[str, ListedFile | None]]:
        with self._asking("can't be listed", self._url):
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(f"{self._root}/{folder}" if folder else self._root, detail=True)
            except FileNotFoundError:
                found = {}
            if not (found or folder):
                self._fs.refuse_nowhere()
        for name, facts in found.items():
            if name.startswith(f"{self._root}/"):
                yield name[len(self._root) + 1 :], _known(facts) if facts.get("type") == "file" else None

    # Reading

    def read(self, path: str, *, limit: int = READ_LIMIT) -> FileContent:
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
                    return FileContent(data, known.version)
        raise StorageFailed("can't be read", path=path, why="other programs keep changing it", remedy=REMEDY)

    def tail(self, path: str, size: int) -> bytes:
        return self._slice(path, None, size)

    def part(self, path: str, begin: int, size: int) -> bytes:
        return self._slice(path, begin, size)

    def _slice(self, path: str, begin: int | None, size: int) -> bytes:
        """`size` bytes from `begin` on, or the last ones."""
        full = self._full(path)
        with self._asking("can't be read", path):
            known = self._look(path)
            if known is None:
                raise missing(path)
            begin = max(0, known.size - size) if begin is None else begin
            end = min(begin + size, known.size)
            if end <= begin:
                return b""
            data: bytes = self._fs.cat_file(full, start=begin, end=end)
        return data[begin:end] if len(data) > end - begin else data  # sshfs gives the whole file

    def _look(self, path: str) -> ListedFile | None:
        """The current facts of one file; the cache is updated."""
        with self._asking("can't be inspected", path), self._view.look() as since:
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
        if self._fs.renames:
            try:
                self._put_aside_and_move(path, data)
            except FileNotFoundError:  # another process has removed an empty folder
                self._made.clear()
                self._put_aside_and_move(path, data)
        else:
            self._upload(path, data)
        self._fs.invalidate_cache()
        return self._wrote(path, data, _known(self._fs.info(full)).version)

    def _upload(self, path: str, data: bytes, **how: Any) -> None:
        """The file in one request."""
        try:
            self._fs.pipe_file(self._full(path), data, **how)
        except FileNotFoundError as error:
            self._fs.refuse_nowhere()
            raise self._fs.failure("can't be written", path, error) from None

    def _put_aside_and_move(self, path: str, data: bytes) -> None:
        temporary = f"{TEMPORARY}/{uuid4().hex}"
        try:
            self._make_folder(TEMPORARY)
            self._fs.pipe_file(self._full(temporary), data)
            self._move(temporary, path)
        except BaseException:
            with suppress(Exception):
                if self._fs.exists(self._full(path)):  # else these bytes may be the only copy left
                    self._fs.rm_file(self._full(temporary))
            raise

    def _move(self, path: str, to: str) -> None:
        """If the server renames only to free names, the file with that name is first moved aside. It goes back if the
        rename fails; if the process dies in between, the next opening puts it back."""
        self._make_folder(os.path.dirname(to))
        source, target = self._full(path), self._full(to)
        try:
            self._fs.rename(source, target)
            return
        except FileExistsError:
            self._make_folder(DISPLACED)
        aside = self._full(f"{DISPLACED}/{uuid4().int >> 96}-0-0-0-0-{displaced_name(to)}")  # no version has these
        try:
            self._fs.rename(target, aside)
            self._fs.rename(source, target)
        except BaseException:
            with suppress(Exception):
                self._fs.rename(aside, target)
            raise
        with suppress(FileNotFoundError):
            self._fs.rm_file(aside)

    def create(self, path: str, data: bytes) -> Version:
        """If `abilities.exclusive_create` is False, several callers may succeed."""
        full = self._full(path)
        with self._asking("can't be written", path):
            if self._fs.exclusive is None:
                if self._look(path):
                    raise taken(path)
                return self._put(path, data)
            try:
                self._upload(path, data, **self._fs.exclusive)
            except FileExistsError:
                raise taken(path) from None
            self._fs.invalidate_cache()
            return self._wrote(path, data, _known(self._fs.info(full)).version)

    def append(self, path: str, data: bytes, *, durable: bool = False, if_version: Version | None = None) -> Version:
        """Read, add, replace."""
        with self._asking("can't be appended to", path):
            try:
                old = self.read(path)
            except FileNotFoundError:
                old = None
            if if_version is not None and (old is None or old.version != if_version):
                raise FileChanged(path)
            if old is not None and not data:
                return old.version
            return self._put(path, (old.data if old else b"") + data)

    def rename(self, path: str, to: str) -> None:
        source, target = self._full(path), self._full(to)
        with self._asking("can't be moved", path, to):
            if self._look(path) is None:
                raise missing(path)
            if self._fs.renames:
                self._move(path, to)
                self._view.wrote(path, None)
            else:
                self._fs.cp_file(source, target)
                self.remove(path)
            self._fs.invalidate_cache()
            self._view.wrote(to, _known(self._fs.info(target)))

    def remove(self, path: str, *, if_version: Version | None = None) -> None:
        full = self._full(path)
        with self._asking("can't be removed", path):
            if if_version is not None and (known := self._look(path)) and known.version != if_version:
                raise FileChanged(path)
            with suppress(FileNotFoundError, NotADirectoryError):
                self._fs.rm_file(full)
            if self._fs.renames:
                self._remove_empty(os.path.dirname(path))
            self._view.wrote(path, None)

    def remove_many(self, paths: Sequence[str]) -> None:
        for path in [check_path(each) for each in paths]:
            self.remove(path)

    def _remove_empty(self, folder: str) -> None:
        while folder:
            try:
                self._fs.rmdir(self._full(folder))
            except OSError:  # not empty, or not there; each driver has its own error for that
                break
            self._made.discard(folder)
            folder = os.path.dirname(folder)

    def _make_folder(self, folder: str) -> None:
        if self._fs.renames and folder not in self._made:
            self._fs.makedirs(self._full(folder) if folder else self._root, exist_ok=True)
            self._made.add(folder)

    def _full(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    @contextmanager
    def _asking(self, what: str, path: str, to: str = "") -> Iterator[None]:
        """The driver's own texts may contain secrets, so errors only name their kind."""
        with self._one:
            try:
                yield
            except (FileNotFoundError, FileExistsError, FileChanged, SatchelError):
                raise
            except NotADirectoryError:
                raise missing(path) from None
            except OSError as error:
                self._view.forget(path)
                if max(len(name.encode()) for name in f"{path}/{to}".split("/")) > NAME_BYTES:
                    why = f"a name in it has more than {NAME_BYTES} bytes"
                    raise UsageError(what, path=path, why=why, remedy="use a shorter one") from None
                raise self._fs.failure(what, path, error) from None


def _known(facts: Mapping[str, Any]) -> ListedFile:
    tag = next((facts[name] for name in ("etag", "ETag", "generation", "md5Hash") if facts.get(name)), None)
    at = next(
        (
            facts[name]
            for name in ("mtime", "modified", "LastModified", "last_modified", "updated", "created", "last_write_time")
            if facts.get(name)
        ),
        None,
    )
    size = int(facts.get("size") or 0)
    if isinstance(at, int | float):  # some drivers give one in listings and the other for one file
        at = datetime.fromtimestamp(at, UTC)
    elif isinstance(at, datetime) and at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    when = moment(at) if isinstance(at, datetime) else ""
    return ListedFile(str(tag) if tag else f"{at}-{size}", size, when)


REMEDY = "check the server and the permissions there, then start it again: nothing that was recorded is lost"

_EXCLUSIVE: dict[str, dict[str, Any]] = {
    "gs": {"mode": "create"},
    "gcs": {"mode": "create"},
    "az": {"overwrite": False},
    "abfs": {"overwrite": False},
    "abfss": {"overwrite": False},
}
"""The arguments of `pipe_file` for an exclusive creation, where the service itself enforces it."""

_WEB = ("http", "https")

_PACKAGES = {
    "sftp": "paramiko",
    "ssh": "paramiko",
    "smb": "smbprotocol",
    "webdav": "webdav4[fsspec]",
    "gs": "satchel[gcs]",
    "gcs": "satchel[gcs]",
    "az": "satchel[azure]",
    "abfs": "satchel[azure]",
    "abfss": "satchel[azure]",
    "hdfs": "pyarrow",
}
_MEANINGS = {
    "ResourceNotFound": errno.ENOENT,
    "ResourceAlreadyExists": errno.EEXIST,
    "IsAResourceError": errno.ENOTDIR,
    "SFTPNoSuchFile": errno.ENOENT,
    "SFTPNoSuchPath": errno.ENOENT,
    "SFTPNotADirectory": errno.ENOTDIR,
    "SFTPFileAlreadyExists": errno.EEXIST,
    "ResourceExistsError": errno.EEXIST,
    "ResourceNotFoundError": errno.ENOENT,
}
"""The meaning of drivers' errors (webdav4, sshfs, adlfs) that are no OSErrors, by the names of their classes."""


class Driver:
    """fsspec's file system at a URL. Its calls raise only OSErrors, whatever the driver raises."""

    def __init__(self, url: str, protocol: str, options: Mapping[str, Any]):
        self._url, self._protocol = url, protocol
        self._files, root = _opened(url, protocol, options)
        self.root = root.rstrip("/")
        self.exclusive = _EXCLUSIVE.get(protocol)
        self.renames = self.exclusive is None and _has_rename(self._files)
        if (close := _closing(self._files)) is not None:
            weakref.finalize(self, close)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return _with_os_errors(getattr(self._files, name))

    def refuse_nowhere(self) -> None:
        """UsageError if there is no such bucket, OSError if no web server answers: their drivers list either as an
        empty place. Call it if a place seems empty."""
        if self.exclusive is not None:
            try:
                self.info(self.root.partition("/")[0])
            except FileNotFoundError:
                raise UsageError(
                    "there is no such bucket",
                    path=self._url,
                    why="the server does not have it for these credentials",
                    remedy="make the bucket, or correct the URL or the storage options",
                ) from None
            except OSError:
                pass  # who may use objects need not be allowed to see the bucket
        elif self._protocol in _WEB:
            with suppress(FileNotFoundError):
                self.cat_file(self.root)

    def failure(self, what: str, path: str, error: OSError) -> StorageFailed:
        """The error for a person."""
        remedy = REMEDY
        status = _status(error)
        if isinstance(error, ConnectionError) or "Connect" in type(error).__name__:
            why = f"no connection to {urlsplit(self._url).hostname or 'the server'}"
            remedy = "check the address, the network and that the server runs, then start it again: nothing that "
            remedy += "was recorded is lost"
        else:
            why = f"the server answered {status}" if status else kind(error)
        if self._protocol in _WEB and what != "can't be read" and status:
            remedy = "use a storage that can be written: most web servers only give files"
        return StorageFailed(what, path=path, why=why, remedy=remedy)

    def rename(self, source: str, target: str) -> None:
        """Where `renames`. Some drivers rename only to free names, and else raise FileExistsError."""
        webdav = getattr(self._files, "client", None) if "webdav" in self._files.protocol else None
        if webdav is not None:  # its `mv` of a file is a copy, and refuses a name that is taken
            _with_os_errors(webdav.move)(source, target, overwrite=True)
        else:
            self.mv(source, target)


def _with_os_errors(call: Callable[..., Any]) -> Callable[..., Any]:
    def mapped(*arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except OSError:
            raise
        except Exception as error:
            code = next((_MEANINGS[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _MEANINGS), None)
            said = os.strerror(code) if code else type(error).__name__  # its text may quote secrets
            raise OSError(code or errno.EIO, said) from error

    return mapped


def _opened(url: str, protocol: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
        from fsspec.registry import get_filesystem_class  # type: ignore[import-untyped]

        get_filesystem_class(protocol)
    except ImportError:
        raise _not_installed(url, protocol) from None
    except ValueError:
        raise UsageError(
            f"fsspec knows no {protocol}://", path=url, remedy="if a package brings it, `pip install` that"
        ) from None
    try:
        files, root = url_to_fs(url, skip_instance_cache=True, **options)
    except ImportError:
        raise _not_installed(url, protocol) from None
    except (TypeError, ValueError, KeyError) as error:
        raise _unsuitable(url, protocol, error) from None
    except Exception as error:
        raise StorageFailed("can't be opened", path=url, why=kind(error), remedy=REMEDY) from None
    return files, str(root)


def _not_installed(url: str, protocol: str) -> UsageError:
    package = _PACKAGES.get(protocol)
    return UsageError(
        f"{protocol}:// needs a package that is not installed",
        path=url,
        remedy=f"`pip install '{package}'`" if package else f"install fsspec's driver for {protocol}",
    )


def _unsuitable(url: str, protocol: str, error: Exception) -> UsageError:
    """The error for options that the driver does not take. Names the option, never its value."""
    said = str(error) if isinstance(error, TypeError) else ""
    what, why, remedy = "can't be opened with these settings", kind(error), "check the URL and the storage options"
    if lacking := re.search(r"missing \d+ required [a-z -]*arguments?: '(\w{1,40})'", said):
        name = lacking.group(1)
        why = f"the storage option {name} is missing"
        remedy = f"add `--storage-option {name}=...`, or set FSSPEC_{protocol.upper()}_{name.upper()}"
    elif unknown := re.search(r"unexpected keyword argument '(\w{1,40})'", said):
        why = f"there is no option {unknown.group(1)}"
    return UsageError(what, path=url, why=why, remedy=remedy)


def _has_rename(files: Any) -> bool:
    """Whether a rename is more than a copy: then a file is whole before it has its name."""
    from fsspec.asyn import AsyncFileSystem  # type: ignore[import-untyped]
    from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

    if isinstance(files, AsyncFileSystem):
        return hasattr(type(files), "_mv")  # fsspec has none of its own
    mine: Callable[..., object] = type(files).mv
    return mine is not AbstractFileSystem.mv


def _closing(files: Any) -> Callable[[], object] | None:
    """A function that closes the connections of a driver that does not do so itself: webdav4, and paramiko with a
    thread each."""
    from fsspec.asyn import AsyncFileSystem

    if isinstance(files, AsyncFileSystem):
        return None
    client = getattr(files, "client", None)
    close: Callable[[], object] | None = getattr(getattr(client, "http", client), "close", None)
    return close


def kind(error: Exception) -> str:
    """An error of a driver in a few words. Its own text is not shown, because it may quote a password."""
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


def _status(error: BaseException | None) -> str:
    """The status of an HTTP answer that a driver's error tells, with its name; else empty."""
    while error is not None:
        status = getattr(error, "status", None) or getattr(error, "status_code", None)
        if status in set(HTTPStatus):
            return f"{status} ({HTTPStatus(status).phrase})"
        error = error.__cause__
    return ""
