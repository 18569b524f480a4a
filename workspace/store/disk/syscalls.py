"""All system calls of the disk store, one method per call, so that tests can intercept them.

The crash explorer (tests/robustness/crash) records these calls and works out what a file system may leave behind after
each. All writes to a workspace on a disk must go through here, or they are not tested.
"""

from __future__ import annotations

import errno
import functools
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Thread
from typing import Any, BinaryIO

_AT_FDCWD = -100
_EXCHANGE = 2

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # a FIFO planted in a workspace must not hang its reader


class Syscalls:
    """The real calls. Paths are absolute; errors are the OSErrors of the calls."""

    def open_new(self, path: str) -> int:
        """A private file that did not exist, for appending. FileExistsError if it did."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | _NOFOLLOW | _CLOEXEC, 0o600)

    def open_append(self, path: str) -> int:
        """A file to append to. FileNotFoundError if there is none, ELOOP for a symbolic link."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | _NOFOLLOW | _CLOEXEC | _NONBLOCK)

    def give(self, fd: int, mode: int, owner: tuple[int, int] | None) -> None:
        """Set mode and owner of a new file. `owner`: user and group, if it changes. Some file systems have neither, and
        a user can't give a file to a foreign group: then it stays as it is."""
        if owner is not None:
            _try(os.fchown, fd, *owner)
        if mode != 0o600:
            _try(os.fchmod, fd, mode)

    def give_folder(self, path: str, mode: int, owner: tuple[int, int] | None) -> None:
        """The same of a folder."""
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

    def has_name(self, fd: int) -> bool:
        """Whether an open file still has a name."""
        return os.fstat(fd).st_nlink > 0

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
        with _open_file(path) as (file, status):
            return file.read(status.st_size + 1 if status.st_size <= limit else 0), status

    def read_end(self, path: str, size: int) -> bytes:
        """At most the last `size` bytes. ELOOP for a symbolic link."""
        with _open_file(path) as (file, status):
            size = min(size, status.st_size)
            file.seek(status.st_size - size)
            return file.read(size)

    def stat(self, path: str) -> os.stat_result:
        return os.lstat(path)

    def has_writer(self, path: str) -> bool | None:
        """Whether any process has a file open for writing. None where the system does not tell: only Linux does, and
        only for one's own files. What is no regular file has no writer."""
        return _has_writer(path)

    def scan(self, path: str) -> list[tuple[str, bool, int]]:
        """(name, is a folder, bytes) of each entry of a folder; symbolic links are neither followed nor hidden. Entries
        that disappear meanwhile are omitted."""
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    size = entry.stat(follow_symlinks=False).st_size
                    found.append((entry.name, entry.is_dir(follow_symlinks=False), size))
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


@contextmanager
def _open_file(path: str) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """A regular file for reading. Buffered, because that continues after a short read: half a journal looks like a torn
    one."""
    fd = os.open(path, os.O_RDONLY | _NOFOLLOW | _CLOEXEC | _NONBLOCK)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        yield file, status
