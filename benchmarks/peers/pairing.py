"""The body of every step: it appends to a file of its own and syncs that, and times what lies between two bodies.

So what a step costs is measured in the same way of all, whatever they call a step: from the end of one body to the
begin of the next. That holds how the first is kept, and how the second is begun.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

RESULT = "x" * 198  # 200 bytes of JSON
RECORD = b"x" * 299 + b"\n"
_BODIES, _AGAIN = "bodies", "bodies-again"
TICK = os.sysconf("SC_CLK_TCK")  # of the CPU times in /proc, a second


class Used(NamedTuple):
    """Of this process and all that it has started."""

    cpu: float  # seconds
    written: int  # bytes handed to the system; 0 where it does not tell

    def since(self, before: Used) -> Used:
        return Used(self.cpu - before.cpu, self.written - before.written)


class Pairing:
    """`body` is called once in each step. Measures the last `count` of `warm + count` gaps between two bodies."""

    def __init__(self, folder: Path, warm: int, count: int, kill_at: int = 0):
        self.total = warm + count + 1  # bodies
        self._warm, self._count, self._kill_at = warm, count, kill_at
        self._fd, self._again = (
            os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in (_BODIES, _AGAIN)
        )
        self._calls = 0
        self._ended = 0.0
        self._gaps: list[float] = []
        self._syncs: list[float] = []
        self._before = self._used = Used(0, 0)

    def body(self) -> str:
        began = time.perf_counter()
        if self._calls > self._warm:
            self._gaps.append(began - self._ended)
        self._calls += 1
        if self._calls == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._calls == self.total:
            self._used = used().since(self._before)
        if self._calls == self._warm + 1:
            self._before = used()
        began = time.perf_counter()
        _append(self._fd)
        self._ended = time.perf_counter()
        self._syncs.append(self._ended - began)
        return RESULT

    def found(self) -> dict[str, float]:
        """Seconds, and bytes a step. Empty if not all bodies were called in this process."""
        if len(self._gaps) != self._count or not self._count:
            return {}
        began = time.thread_time()  # of this thread alone: some subjects do deferred work in others
        for _ in range(self._count):
            _append(self._again)
        own = time.thread_time() - began
        syncs = self._syncs[self._warm + 1 :]
        return {
            "step": median(self._gaps),
            "sync": median(syncs),
            "mean_step": fmean(self._gaps),
            "mean_sync": fmean(syncs),
            "cpu": (self._used.cpu - own) / self._count,
            "written": self._used.written / self._count - len(RECORD),
        }


def _append(fd: int) -> None:
    os.write(fd, RECORD)
    os.fdatasync(fd)


def bodies(folder: Path) -> int:
    """How many bodies were called there in all, by every process."""
    return (folder / _BODIES).stat().st_size // len(RECORD)


def kept(folder: Path) -> int:
    """Bytes in all files but those of the bodies, when SQLite has put its write-ahead logs back into the databases."""
    for log in [*folder.rglob("*-wal")]:
        with closing(sqlite3.connect(log.with_name(log.name.removesuffix("-wal")))) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(
        path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name not in (_BODIES, _AGAIN)
    )


def used() -> Used:
    found = below()
    cpu = time.process_time() + sum(int(fields[11]) + int(fields[12]) for fields in found.values()) / TICK
    return Used(cpu, sum(map(_written, [os.getpid(), *found])))


def below() -> dict[int, list[str]]:
    """The processes that this one has started, and those that they have, each with its `stat` behind the name."""
    children: dict[int, list[int]] = {}
    every: dict[int, list[str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        pid = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        every[pid] = fields
    found = [*children.get(os.getpid(), ())]
    for pid in found:
        found += children.get(pid, ())
    return {pid: every[pid] for pid in found}


def _written(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("wchar:")), 0)
