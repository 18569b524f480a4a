"""Crash a run in this process: from one record on, nothing reaches its folder any more."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from ...workspace import journal
from ...workspace.base import StorageFailed, UsageError, arguments
from ...workspace.store import DiskStore, Syscalls
from ..agent import Agent
from ..execution import Outcome, run


class Unsynced(Syscalls):
    """The calls of a disk without its syncs: what crashes here is a process, not the machine."""

    def sync(self, fd: int) -> None: ...

    def sync_data(self, fd: int) -> None: ...

    def sync_folder(self, path: str) -> None: ...


class Crashing(Unsynced):
    """The calls of a disk that takes so many records of the journal, or all until `has_crashed` is set, and then no
    change any more. The next process finds what it would find if this one had been killed at that moment."""

    def __init__(self, most: int | None = None):
        self._most = most
        self.records = 0  # that it has taken
        self._segments: set[int] = set()  # open files of the journal
        self.has_crashed = False

    def _check(self) -> None:
        if self.has_crashed:
            raise OSError(errno.EIO, "the test has stopped the process here")

    def open_new(self, path: str) -> int:
        self._check()
        fd = super().open_new(path)
        if Path(path).parent.name == journal.FOLDER:
            self._segments.add(fd)
        return fd

    def open_append(self, path: str) -> int:
        self._check()
        return super().open_append(path)

    def write(self, fd: int, data: bytes) -> None:
        self._check()
        if fd in self._segments:
            lines = data.splitlines(keepends=True)
            taken = lines if self._most is None else lines[: self._most - self.records]
            data = b"".join(taken)
            self.records += len(taken)
            if len(taken) < len(lines):
                self.has_crashed = True
        super().write(fd, data)
        self._check()

    def close(self, fd: int) -> None:
        self._segments.discard(fd)
        super().close(fd)

    def rename(self, source: str, target: str) -> None:
        self._check()
        super().rename(source, target)

    def exchange(self, one: str, other: str) -> bool:
        self._check()
        return super().exchange(one, other)

    def link(self, source: str, target: str) -> None:
        self._check()
        super().link(source, target)

    def unlink(self, path: str) -> None:
        self._check()
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        self._check()
        super().mkdir(path)

    def rmdir(self, path: str) -> None:
        self._check()
        super().rmdir(path)


def crash_after(records: int, folder: str | os.PathLike[str], agent: Agent | None = None, **options: Any) -> Outcome:
    """Run an agent, crash it when it has written `records` records, resume it, and return how it stopped then.
    `options` are those of `satchel.run`. UsageError if the run stops before that record.

    The crash is in this process: threads and tasks of the agent are not killed, but nothing that they do is recorded.
    Nothing is synced, so this tells nothing about power failures. In a running event loop call it in a thread
    (`asyncio.to_thread`).
    """
    arguments.no_loop("crash_after", "call `await asyncio.to_thread(crash_after, records, folder, agent)` there")
    if records < 1:
        raise UsageError(f"a run can't crash after {records} records", remedy="give 1 or more")
    if ended_before(Crashing(records), folder, agent, **options) is not None:
        raise UsageError(f"the run stopped before its record {records}", path=os.fspath(folder))
    return resumed(folder, agent, **options)


def ended_before(
    calls: Crashing, folder: str | os.PathLike[str], agent: Agent | None, **options: Any
) -> Outcome | None:
    """Run it up to its crash. The outcome, if the crash did not come."""
    try:
        outcome = run(DiskStore(folder, calls), agent, **options)
    except StorageFailed:
        if not calls.has_crashed:
            raise
        return None
    return None if calls.has_crashed else outcome


def resumed(folder: str | os.PathLike[str], agent: Agent | None, **options: Any) -> Outcome:
    return run(DiskStore(folder, Unsynced()), agent, **options)
