"""Differences of fsspec's drivers: their packages, how they rename and create, and their errors."""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any

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

_PACKAGES = {
    "sftp": "paramiko",
    "ssh": "paramiko",
    "smb": "smbprotocol",
    "webdav": "webdav4[fsspec]",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
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
        self._files, root = _opened(url, protocol, options)
        self.root = root.rstrip("/")
        self.exclusive = _EXCLUSIVE.get(protocol)
        self.renames = self.exclusive is None and _has_rename(self._files)
        if (close := _closing(self._files)) is not None:
            weakref.finalize(self, close)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return _with_os_errors(getattr(self._files, name))

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
        package = _PACKAGES.get(protocol)
        raise UsageError(
            f"{protocol}:// needs a package that is not installed",
            path=url,
            remedy=f"`pip install '{package}'`" if package else f"install fsspec's driver for {protocol}",
        ) from None
    except ValueError:
        raise UsageError(
            f"fsspec knows no {protocol}://", path=url, remedy="if a package brings it, `pip install` that"
        ) from None
    try:
        files, root = url_to_fs(url, skip_instance_cache=True, **options)
    except (TypeError, ValueError, KeyError) as error:
        raise UsageError(
            "can't be opened with these settings", path=url, why=kind(error), remedy="check the URL and the options"
        ) from None
    except Exception as error:
        raise StorageFailed("can't be opened", path=url, why=kind(error), remedy=REMEDY) from None
    return files, str(root)


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
