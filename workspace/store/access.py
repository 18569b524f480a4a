"""Who may read and write what Satchel makes in a folder of a disk, and what to say to a user who may not.

Files are for the folder's owner alone, or for its group too if the folder is shared with the group. What root writes
belongs to the owner of the folder, so that a single run as root locks nobody out.
"""

from __future__ import annotations

import errno
import getpass
import os
import stat
from typing import NamedTuple


class Access(NamedTuple):
    """Modes of files and folders, and whom they are given to (None: whoever makes them)."""

    file: int
    folder: int
    owner: tuple[int, int] | None  # user (-1: whoever makes them), group


def access_in(folder: os.stat_result) -> Access:
    """For what is made in a workspace whose folder this is."""
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


def remedy(error: OSError) -> str:
    """What to do about a file or folder that this user may not read or write."""
    if error.errno == errno.EROFS:
        return "mount this file system writable, or copy the workspace elsewhere"
    path = os.fspath(error.filename) if isinstance(error.filename, str | os.PathLike) else ""
    while path and not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    try:
        owner, me = os.lstat(path).st_uid, os.geteuid()
    except (OSError, AttributeError):
        return "make the folder writable for this user"
    if owner == me:
        return f"{path} is yours: `chmod u+rw` it"
    theirs, mine = user_name(owner), user_name(me)
    return (
        f"{path} belongs to {theirs}, and you are {mine}: run this as {theirs}, or `sudo chown -R {mine}` the workspace"
    )
