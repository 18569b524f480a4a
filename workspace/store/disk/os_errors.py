"""Errors of the operating system in terms of a workspace, and the permissions that avoid some of them.

The files that Satchel makes in a folder of a disk are private to the folder's owner, or shared with its group if the
folder is. Files of root belong to the owner of the folder, so that a single run as root does not lock that user out.
"""

from __future__ import annotations

import errno
import getpass
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ....schemas import Problem
from ...base import InvalidFile, SatchelError, StorageFailed, UsageError
from ..contract import FileChanged

NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
"""There is no such file, and there may be none."""

_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class Permissions(NamedTuple):
    """Modes and owners of new files and folders (None: the user of this process)."""

    file: int
    folder: int
    owner: tuple[int, int] | None  # user (-1: the one who makes them), group


def access_in(folder: os.stat_result) -> Permissions:
    """The access in a workspace with this folder."""
    is_shared = bool(folder.st_mode & (stat.S_IWGRP | stat.S_ISGID))
    is_of_another = hasattr(os, "geteuid") and os.geteuid() == 0 and folder.st_uid != 0
    owner = (folder.st_uid if is_of_another else -1, folder.st_gid) if is_of_another or is_shared else None
    inherited = folder.st_mode & stat.S_ISGID  # a chmod without it takes it away
    return Permissions(0o660, 0o770 | inherited, owner) if is_shared else Permissions(0o600, 0o700, owner)


def user_name(number: int) -> str:
    try:
        import pwd
    except ImportError:  # Windows
        return getpass.getuser()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def user_here(number: int) -> str:
    """With the name of this machine."""
    import socket  # slow to import, and most commands need no name

    return f"{user_name(number)}@{socket.gethostname()}"


def permission_remedy(error: OSError) -> str:
    """What to do about a file or folder that this user may not read or write."""
    if error.errno == errno.EROFS:
        return "mount this file system writable, or copy the workspace elsewhere"
    path = _in_the_way(error)
    try:
        owner, me = os.lstat(path).st_uid, os.geteuid()
    except (OSError, AttributeError):
        return "make the folder writable for this user"
    if owner == me:
        return f"{path} is yours: `chmod {'u+rwx' if os.path.isdir(path) else 'u+rw'}` it"
    theirs, mine = user_name(owner), user_name(me)
    return (
        f"{path} belongs to {theirs}, and you are {mine}: run this as {theirs}, or `sudo chown -R {mine}` the workspace"
    )


def _in_the_way(error: OSError) -> str:
    """The file or folder that this user may not use: one that the call named, or its folder. Of two names it is
    probably the target, because the other is a temporary file."""
    found = ""
    for named in (error.filename2, error.filename):
        path = os.fspath(named) if isinstance(named, str | os.PathLike) else ""
        while path and not os.path.lexists(path) and path != os.path.dirname(path):
            path = os.path.dirname(path)
        if path and (refused := _refused(path)):
            return refused
        found = path or found
    return found


def _refused(path: str) -> str:
    """This file or folder, or its folder. A file that can only be read is seldom the one to write, because files are
    replaced."""
    folder = os.path.dirname(path)
    if not _may_use(path, os.R_OK | (os.W_OK | os.X_OK if os.path.isdir(path) else 0)):
        return path
    if not _may_use(folder, os.R_OK | os.W_OK | os.X_OK):
        return folder
    return "" if _may_use(path, os.W_OK) else path


def _may_use(path: str, how: int) -> bool:
    return os.access(path, how, effective_ids=os.access in os.supports_effective_ids)


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
        remedy = permission_remedy(error)
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
