"""Everything the disk store asks of the operating system, one method a call, so that tests can stand in between.

The crash explorer (tests/crash) records these calls and works out what a file system may leave behind after each.
Whatever writes to a workspace on a disk goes through here, or it goes untested.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import BinaryIO

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

    def lock(self, path: str) -> AbstractContextManager[object]:
        """Held until it is left or the process dies. filelock.Timeout if another process holds it."""
        from filelock import FileLock  # takes 9 ms to import, and looking at a workspace needs no lock

        return FileLock(path, timeout=0)


@contextmanager
def _open_file(path: str) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """A regular file for reading. Buffered, as it goes on after a short read: half a journal looks like a torn one."""
    fd = os.open(path, os.O_RDONLY | _NOFOLLOW | _CLOEXEC | _NONBLOCK)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        yield file, status
