"""Everything the disk store asks of the operating system, one method a call, so that tests can stand in between.

The crash explorer (tests/crash) records these calls and works out what a file system may leave behind after each.
Whatever writes to a workspace on a disk goes through here, or it goes untested.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import BinaryIO

_AT_FDCWD = -100
_EXCHANGE = 2

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # a FIFO planted in a workspace must not hang its reader


class Syscalls:
    """The real ones. Paths are absolute; errors are the OSErrors of the calls."""

    def open_new(self, path: str) -> int:
        """A file that did not exist, for appending. FileExistsError if it did."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | _NOFOLLOW | _CLOEXEC, 0o644)

    def open_append(self, path: str) -> int:
        """A file to write to the end of; made if need be. ELOOP for a symbolic link."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _NOFOLLOW | _CLOEXEC | _NONBLOCK, 0o644)

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

    def has_name(self, fd: int) -> bool:
        """Whether an open file can still be found under some name."""
        return os.fstat(fd).st_nlink > 0

    def close(self, fd: int) -> None:
        os.close(fd)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def exchange(self, one: str, other: str) -> bool:
        """Let two files change their names, atomically. False where the system can't."""
        return _exchange(one, other)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def read(self, path: str, limit: int) -> tuple[bytes, os.stat_result]:
        """At most `limit` + 1 bytes, and what the file was when it was opened. ELOOP for a symbolic link."""
        with _open_file(path) as (file, status):
            return file.read(min(limit, status.st_size) + 1), status

    def read_end(self, path: str, size: int) -> bytes:
        """At most the last `size` bytes. ELOOP for a symbolic link."""
        with _open_file(path) as (file, status):
            size = min(size, status.st_size)
            file.seek(status.st_size - size)
            return file.read(size)

    def stat(self, path: str) -> os.stat_result:
        return os.lstat(path)

    def scan(self, path: str) -> list[tuple[str, bool, int]]:
        """(name, is a folder, bytes) of what lies in a folder; symbolic links are neither followed nor hidden."""
        with os.scandir(path) as entries:
            return [
                (entry.name, entry.is_dir(follow_symlinks=False), entry.stat(follow_symlinks=False).st_size)
                for entry in entries
            ]

    def resolve(self, path: str) -> str:
        return os.path.realpath(path)

    def watch(self, paths: Sequence[str], hint: Callable[[], None]) -> AbstractContextManager[object]:
        """Call `hint`, in another thread, when something directly in one of these folders may have changed. Not
        guaranteed to: events are lost past the system's limits, and some file systems have none."""
        return _watching(paths, hint)

    def lock(self, path: str) -> AbstractContextManager[object]:
        """Held until it is left or the process dies. filelock.Timeout if another process holds it."""
        from filelock import FileLock  # takes 9 ms to import, and looking at a workspace needs no lock

        return FileLock(path, timeout=0)


def _exchange(one: str, other: str) -> bool:
    if sys.platform != "linux":
        return False
    renameat2 = _renameat2()
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EPERM):  # not on this file system
        return False
    raise OSError(number, os.strerror(number), one)


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    """See renameat2(2). Python has no name for it."""
    library = ctypes.CDLL(None, use_errno=True)
    return getattr(library, "renameat2", None)


@contextmanager
def _watching(paths: Sequence[str], hint: Callable[[], None]) -> Iterator[None]:
    from watchdog.events import FileSystemEvent, FileSystemEventHandler
    from watchdog.observers import Observer

    # It tells on stderr that it was stopped while an event came, which is no news.
    logging.getLogger("watchdog").setLevel(logging.CRITICAL)

    class Handler(FileSystemEventHandler):
        def on_any_event(self, event: FileSystemEvent) -> None:
            if event.event_type not in ("opened", "closed_no_write"):
                hint()

    try:
        observer = Observer()
    except OSError:  # no more of them on this machine
        yield
        return
    try:
        with suppress(OSError):  # no more watches, or a folder is gone
            for path in paths:
                if os.path.isdir(path):
                    observer.schedule(Handler(), path)
            observer.start()
        yield
    finally:
        observer.stop()
        if observer.is_alive():
            observer.join()


@contextmanager
def _open_file(path: str) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """A regular file for reading. Buffered, as it goes on after a short read: half a journal looks like a torn one."""
    fd = os.open(path, os.O_RDONLY | _NOFOLLOW | _CLOEXEC | _NONBLOCK)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        yield file, status
