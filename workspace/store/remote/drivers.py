"""Differences of fsspec's drivers: their packages, how they rename and create, and their errors."""

from __future__ import annotations

import errno
import os
import re
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from ...base import StorageFailed, UsageError

REMEDY = "check the server and the permissions there, then run `satchel resume`: nothing that was recorded is lost"

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
            remedy = "check the address, the network and that the server runs, then run `satchel resume`: nothing that "
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
