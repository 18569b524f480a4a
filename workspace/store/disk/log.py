"""A file of a disk that grows: appended data is durable when the call returns."""

from __future__ import annotations

from contextlib import suppress

from ...base import LeaseHeld
from .errors import failed
from .syscalls import Syscalls


class DiskLog:
    """A `Log` on an open file descriptor."""

    def __init__(self, syscalls: Syscalls, fd: int, path: str, folder: str):
        self._os, self._fd, self._path, self._folder = syscalls, fd, path, folder

    def append(self, data: bytes) -> None:
        try:
            self._os.write(self._fd, data)
            self._os.sync_data(self._fd)
            if not self._os.has_name(self._fd):  # an opening replaces or removes the last log
                self._os.stat(self._folder)  # or the whole workspace was removed
                raise LeaseHeld(
                    "was replaced while this process was writing it",
                    path=self._path,
                    why="the lock was deleted, and another process has taken the workspace",
                    remedy="see `satchel status`; nothing that was recorded is lost",
                )
        except OSError as error:
            raise failed("can't be appended to", self._path, error) from error

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):  # all that was acknowledged is durable already
                self._os.close(fd)
