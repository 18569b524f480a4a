"""Permissions of the files that Satchel makes in a folder of a disk, and what to tell a user without permission.

Files are private to the folder's owner, or shared with its group if the folder is. Files of root belong to the owner of
the folder, so that a single run as root does not lock that user out.
"""

from __future__ import annotations

import errno
import getpass
import os
import stat
from typing import NamedTuple


class Access(NamedTuple):
    """Modes and owners of new files and folders (None: the user of this process)."""

    file: int
    folder: int
    owner: tuple[int, int] | None  # user (-1: the one who makes them), group


def access_in(folder: os.stat_result) -> Access:
    """The access in a workspace with this folder."""
    is_shared = bool(folder.st_mode & (stat.S_IWGRP | stat.S_ISGID))
    is_of_another = hasattr(os, "geteuid") and os.geteuid() == 0 and folder.st_uid != 0
    owner = (folder.st_uid if is_of_another else -1, folder.st_gid) if is_of_another or is_shared else None
    inherited = folder.st_mode & stat.S_ISGID  # a chmod without it takes it away
    return Access(0o660, 0o770 | inherited, owner) if is_shared else Access(0o600, 0o700, owner)


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


def remedy(error: OSError) -> str:
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
