"""Errors of the operating system in terms of a workspace."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ....schemas import Problem
from ...base import InvalidFile, SatchelError, StorageFailed, UsageError
from ..contract import FileChanged
from . import access

NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
"""There is no such file, and there may be none."""

_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def invalid(path: str, found: str, expected: str, remedy: str) -> InvalidFile:
    return InvalidFile(path, [Problem("as a whole", found, expected, remedy)])


def failed(what: str, path: str, error: OSError) -> SatchelError:
    if error.errno == errno.ENAMETOOLONG:
        return UsageError(what, path=path, why="the name is too long for this disk", remedy="use a shorter one")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "free some space, then run `satchel resume`: nothing that was recorded is lost"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        remedy = access.remedy(error)
    elif error.errno == errno.ENOENT:
        remedy = "if the workspace was renamed, moved or removed while it was running, start it at its new place"
    else:
        remedy = "check the disk, then run `satchel resume`: it uses only what it can read back and write again"
    return StorageFailed(what, path=path, why=_reason(error), remedy=remedy)


@contextmanager
def reading(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in NOT_THERE:
            raise FileNotFoundError(errno.ENOENT, "no such file", path) from error
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise invalid(path, "a symbolic link", "a file", "Replace it by the file itself") from error
        if error.errno in (errno.EINVAL, errno.EISDIR, errno.ENXIO):
            raise invalid(path, "a folder or a device", "a file", "Move it away") from error
        raise failed("can't be read", path, error) from error


@contextmanager
def failing(what: str, path: str) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, FileChanged):
        raise
    except OSError as error:
        raise failed(what, path, error) from error


@contextmanager
def locking(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise failed("can't be locked", path, error) from error
        remedy = "use a file system with locks (a local disk, or NFS with its lock service), or a bucket"
        raise StorageFailed("can't be locked", path=path, why=_reason(error), remedy=remedy) from error
