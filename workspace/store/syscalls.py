"""The system calls of the disk store, their errors in terms of a workspace, and the permissions of new files.

There is one method per call, so that tests can intercept them. The crash explorer (tests/robustness/crash) records
these calls and works out what a file system may leave behind after each. All writes to a workspace on a disk must go
through here, or they are not tested.

The files that Satchel makes in a folder of a disk are private to the folder's owner, or shared with its group if the
folder is. Files of root belong to the owner of the folder, so that a single run as root does not lock that user out.
"""

from __future__ import annotations

import errno
import functools
import getpass
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Thread
from typing import Any, BinaryIO, NamedTuple

from ...schemas import Problem
from ..base import InvalidFile, SatchelError, StorageFailed, UsageError
from .contract import FileChanged

_AT_FDCWD = -100
_EXCHANGE = 2

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # a FIFO planted in a workspace must not hang its reader

_STDERR = 2


class Syscalls:
    """The real calls. Paths are absolute; errors are the OSErrors of the calls."""

    def open_new(self, path: str) -> int:
        """A private file that did not exist, for appending. FileExistsError if it did."""
        return apart(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | _NOFOLLOW | _CLOEXEC, 0o600))

    def open_append(self, path: str) -> int:
        """A file to append to. FileNotFoundError if there is none, ELOOP for a symbolic link."""
        return apart(os.open(path, os.O_WRONLY | os.O_APPEND | _NOFOLLOW | _CLOEXEC | _NONBLOCK))

    def give(self, fd: int, mode: int, owner: tuple[int, int] | None) -> None:
        """Set mode and owner of a new file. `owner`: user and group, if it changes. Some file systems have neither, and
        a user can't give a file to a foreign group: then it stays as it is."""
        if owner is not None:
            _try(os.fchown, fd, *owner)
        if mode != 0o600:
            _try(os.fchmod, fd, mode)

    def give_folder(self, path: str, mode: int, owner: tuple[int, int] | None) -> None:
        """Set mode and owner of a new folder, like `give`."""
        if owner is not None:
            _try(os.chown, path, *owner, follow_symlinks=False)
        if mode != 0o700:
            _try(os.chmod, path, mode)

    def write(self, fd: int, data: bytes) -> None:
        while (written := os.write(fd, data)) < len(data):
            data = data[written:]

    def sync_data(self, fd: int) -> None:
        """Content and size are durable; the name may not be."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(fd)
        else:
            self.sync(fd)

    def sync(self, fd: int) -> None:
        try:
            import fcntl

            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined, unused-ignore]  # macOS: fsync stops at the drive's cache
        except (ImportError, AttributeError):
            os.fsync(fd)

    def sync_folder(self, path: str) -> None:
        """The names in a folder are durable."""
        fd = os.open(path, os.O_RDONLY | _CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def status(self, fd: int) -> os.stat_result:
        """The facts of an open file."""
        return os.fstat(fd)

    def is_at(self, fd: int, path: str) -> bool:
        """Whether an open file is the one at a path."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return os.path.samestat(os.lstat(path), os.fstat(fd))
        return False

    def close(self, fd: int) -> None:
        os.close(fd)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def exchange(self, one: str, other: str) -> bool:
        """Exchange the names of two files, atomically. False where the system can't."""
        return _exchange(one, other)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """A private folder."""
        os.mkdir(path, 0o700)

    def mkdir_shared(self, path: str) -> None:
        """A folder with the permissions that the user's umask leaves, as of any program."""
        os.mkdir(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def read(self, path: str, limit: int) -> tuple[bytes, os.stat_result]:
        """At most `limit` + 1 bytes, and the facts of the file when it was opened; nothing of a larger one. ELOOP for a
        symbolic link."""
        fd, status = _open(path)
        try:
            return _read(fd, status.st_size + 1 if status.st_size <= limit else 0), status
        finally:
            os.close(fd)

    def read_end(self, path: str, size: int) -> bytes:
        """At most the last `size` bytes. ELOOP for a symbolic link."""
        with _open_file(path) as (file, status):
            size = min(size, status.st_size)
            file.seek(status.st_size - size)
            return file.read(size)

    def read_part(self, path: str, begin: int, size: int) -> bytes:
        """At most `size` bytes from `begin` on. ELOOP for a symbolic link."""
        with _open_file(path) as (file, status):
            file.seek(begin)
            return file.read(max(0, min(size, status.st_size - begin)))

    def read_from(self, path: str, offset: int) -> bytes:
        """All bytes from `offset` on, synced before they are read. ELOOP for a symbolic link."""
        with _open_file(path) as (file, status):
            if status.st_size <= offset:
                return b""
            self.sync_data(file.fileno())
            file.seek(offset)
            return file.read(status.st_size - offset)

    def stat(self, path: str) -> os.stat_result:
        return os.lstat(path)

    def has_writer(self, path: str) -> bool | None:
        """Whether any process has a file open for writing. None where the system does not tell: only Linux does, and
        only for one's own files. What is no regular file has no writer."""
        return _has_writer(path)

    def scan(self, path: str) -> dict[str, os.stat_result]:
        """The facts of each entry of a folder, by name; symbolic links are neither followed nor hidden. Entries that
        disappear meanwhile are omitted."""
        found = {}
        with os.scandir(path) as entries:
            for entry in entries:
                try:  # `suppress` takes as long as the call
                    found[entry.name] = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
        return found

    def is_link(self, path: str) -> bool:
        """Whether this name itself is a symbolic link."""
        return os.path.islink(path)

    def resolve(self, path: str) -> str:
        return os.path.realpath(path)

    def watch(self, paths: Sequence[str], hint: Callable[[], None]) -> AbstractContextManager[object]:
        """Call `hint`, in another thread, when a file directly in one of these folders may have changed. Not
        guaranteed: events are lost past the system's limits, and some file systems have none. It may be called shortly
        after the body has ended."""
        return _watching(paths, hint)

    def lock(self, path: str) -> AbstractContextManager[object]:
        """Held until the body ends or the process dies. filelock.Timeout if another process holds it."""
        from filelock import FileLock  # takes 9 ms to import, and looking at a workspace needs no lock

        # A file that only exists keeps no process out. The thread that takes it may not be the one that releases it.
        return FileLock(path, timeout=0, fallback_to_soft=False, thread_local=False)

    def try_lock(self, path: str) -> None:
        """OSError if a file can't be locked. Tries a shared lock, which is released at once."""
        import fcntl

        with _open_file(path) as (file, _), suppress(BlockingIOError):  # it is locked by another process
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def apart(fd: int) -> int:
    """The file under a number other than those of stdin, stdout and stderr. If a process was started without one of
    these, the next file gets its number, and all that a library prints: that damages a journal."""
    if fd > _STDERR:
        return fd
    import fcntl

    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STDERR + 1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, fd)  # at once: the file of another thread could get the number
    os.close(nowhere)
    return moved


def open_standard() -> None:
    """Open stdin, stdout and stderr to nowhere, where this process was started without them."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(fd, True)
    os.close(fd)


def _try(change: Callable[..., None], *args: Any, **options: Any) -> None:
    try:
        change(*args, **options)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise


def _has_writer(path: str) -> bool | None:
    """Asks the kernel for a read lease, which it grants if no process has the file open for writing, and returns it.

    A process that opens the file for writing meanwhile waits for these microseconds, and we get a signal: SIGURG, which
    is ignored by default. Name it before the lease is requested, since the default, SIGIO, would kill this process.
    """
    if sys.platform != "linux":
        return None
    import fcntl

    try:
        fd = os.open(path, os.O_RDONLY | _NOFOLLOW | _CLOEXEC | _NONBLOCK)
    except OSError as error:
        return {errno.ELOOP: False, errno.EAGAIN: True}.get(error.errno or 0)  # a symbolic link; another's write lease
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return False
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return False
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(fd)


def _exchange(one: str, other: str) -> bool:
    if sys.platform != "linux":
        return False
    renameat2 = _renameat2()
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return True
    import ctypes

    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EPERM):  # not on this file system
        return False
    raise OSError(number, os.strerror(number), one)


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    """See renameat2(2). Python has no name for it."""
    import ctypes  # for writers only

    library = ctypes.CDLL(None, use_errno=True)
    return getattr(library, "renameat2", None)


@contextmanager
def _watching(paths: Sequence[str], hint: Callable[[], None]) -> Iterator[None]:
    import logging

    from watchdog import events
    from watchdog.observers import Observer

    # It prints to stderr if it is stopped during an event, which is no problem.
    logging.getLogger("watchdog").setLevel(logging.CRITICAL)

    class Handler(events.FileSystemEventHandler):
        def on_any_event(self, event: events.FileSystemEvent) -> None:
            hint()

    changes = [
        events.FileCreatedEvent,
        events.FileModifiedEvent,
        events.FileClosedEvent,
        events.FileMovedEvent,
        events.FileDeletedEvent,
    ]
    try:
        observer = Observer()
    except OSError:  # the machine's limit is reached
        yield
        return
    try:
        with suppress(OSError):  # no more watches, or a folder is gone
            for path in paths:
                if os.path.isdir(path):
                    observer.schedule(Handler(), path, event_filter=changes)
            observer.start()
        yield
    finally:
        # Stopping waits for threads that sleep half a second whenever a file is moved out of a folder, which is what
        # an exchange does with the old one. The end of a run must not wait for them.
        Thread(target=observer.stop, name="satchel-unwatch", daemon=True).start()


def _open(path: str) -> tuple[int, os.stat_result]:
    """A regular file for reading."""
    fd = os.open(path, os.O_RDONLY | _NOFOLLOW | _CLOEXEC | _NONBLOCK)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
    except BaseException:
        os.close(fd)
        raise
    return fd, status


def _read(fd: int, size: int) -> bytes:
    """So many bytes; fewer only where the file ends. It goes on after a short read: half a journal looks like a torn
    one."""
    data = os.read(fd, size)
    while len(data) < size and (more := os.read(fd, size - len(data))):
        data += more
    return data


@contextmanager
def _open_file(path: str) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """A file to read, buffered, and its status."""
    fd, status = _open(path)
    with open(fd, "rb") as file:
        yield file, status


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
        remedy = "free some space, then start it again: nothing that was recorded is lost"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        remedy = permission_remedy(error)
    elif error.errno == errno.ENOENT:
        remedy = "if the workspace was renamed, moved or removed while it was running, start it at its new place"
    else:
        remedy = "check the disk, then start it again: it uses only what it can read back and write again"
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
