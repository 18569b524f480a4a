"""What the benchmarks share: workspaces on a real disk, the cost of a sync there, and the form of a result."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

from satchel import Outcome
from satchel.workspace.base.names import DEFINITION
from satchel.workspace.formats import definition
from satchel.workspace.formats.definition import Definition
from satchel.workspace.store import DISPLACED, TEMPORARY, Syscalls

REPOSITORY = Path(__file__).resolve().parent.parent
_IN_MEMORY = frozenset(("tmpfs", "ramfs", "overlay"))

Kind = Literal["time", "count", "bytes"]
"""What a result depends on: times on the machine and its load, counts and bytes only on the program."""


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table."""

    measure: str
    kind: Kind
    target: str
    found: float
    limit: float | None  # None: no target, told for comparison
    text: str  # `found`, for people
    basis: str = ""  # what it was made of

    @property
    def is_over(self) -> bool:
        return self.limit is not None and self.found > self.limit

    @property
    def fails(self) -> bool:
        """It is over its target because of the program."""
        return self.is_over and self.kind != "time"


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a benchmark makes workspaces, and whether it must be quick."""

    folder: Path
    quick: bool = False

    def workspace(self, name: str) -> Path:
        """A new workspace. `run` gets the agent, so the one that it names is never imported."""
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))
        text = definition.encode(Definition("benchmark", "benchmark.py:main"))
        (folder / DEFINITION).write_text(text)
        return folder

    def copy(self, workspace: Path) -> Path:
        """A synced copy of the workspace, so that later measurements do not pay for the copying."""
        target = Path(tempfile.mkdtemp(prefix="copy-", dir=self.folder))
        shutil.copytree(workspace, target, dirs_exist_ok=True)
        for path in [target, *target.rglob("*")]:
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
        return target

    def pick(self, normal: int, quick: int) -> int:
        return quick if self.quick else normal


@contextmanager
def ground(place: Path, *, quick: bool) -> Iterator[Ground]:
    """A temporary folder in `place`, removed afterwards. Refused in memory, where a sync costs nothing."""
    kind = file_system(place)
    if kind in _IN_MEMORY:
        raise SystemExit(f"{place} is on {kind}, where a sync costs nothing; name a folder on a disk with --dir")
    folder = Path(tempfile.mkdtemp(prefix=".satchel-benchmarks-", dir=place))
    try:
        yield Ground(folder, quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def file_system(folder: Path) -> str:
    """The kind of file system of a folder, where the system tells (Linux)."""
    try:
        rows = [row.split() for row in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return "an unknown file system"
    path = folder.resolve()
    around = [(len(row[1]), row[2]) for row in rows if path.is_relative_to(row[1])]
    return max(around, default=(0, "an unknown file system"))[1]


class Beside:
    """The unit of comparison: an append and fdatasync, in a file next to the workspaces."""

    def __init__(self, folder: Path):
        self._fd = os.open(folder / "other", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def append(self, data: bytes) -> None:
        os.write(self._fd, data)
        os.fdatasync(self._fd)


class CountedSyscalls(Syscalls):
    """The real ones, with the number of syncs: of the journal's current segment, and of everything else."""

    def __init__(self) -> None:
        self.journal = self.others = 0

    def sync_data(self, fd: int) -> None:
        self.journal += 1
        super().sync_data(fd)

    def sync(self, fd: int) -> None:
        self.others += 1
        super().sync(fd)

    def sync_folder(self, path: str) -> None:
        self.others += 1
        super().sync_folder(path)


class Sizes(NamedTuple):
    """Bytes in the files of a workspace; not in the blocks they take."""

    journal: int
    checkpoints: int
    projections: int  # state.json, todo.md, steps/ and what else is there to be looked at
    internal: int  # .satchel/

    @property
    def all(self) -> int:
        return sum(self)

    def __str__(self) -> str:
        return ", ".join(f"{name} {getattr(self, name):,}" for name in self._fields)


def sizes(workspace: Path) -> Sizes:
    """Of all files, but for what lies there only for seconds: how much that is depends on the moment."""
    found = {"journal": 0, "checkpoints": 0, "projections": 0, ".satchel": 0}
    for path in workspace.rglob("*"):
        inside = path.relative_to(workspace)
        if inside.parent not in (Path(DISPLACED), Path(TEMPORARY)) and path.is_file():
            top = inside.parts[0]
            found[top if top in found else "projections"] += path.stat().st_size
    return Sizes(*found.values())


def last_record(workspace: Path) -> bytes:
    """The newest line of the journal."""
    newest = max((workspace / "journal").iterdir())
    return newest.read_bytes().splitlines(keepends=True)[-1]


def child(module: str, *arguments: object) -> subprocess.Popen[str]:
    """`python -m benchmarks.MODULE ARGUMENTS`, its output in a pipe."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def stop_itself(stop: str) -> None:
    """In a child that prepares a workspace: `kill` or `clean`."""
    os.kill(os.getpid(), signal.SIGKILL if stop == "kill" else signal.SIGTERM)
    await asyncio.sleep(60)


def check_paused(outcome: Outcome) -> None:
    """Called for the run that stopped itself, if it is still there."""
    if outcome.status != "paused":
        raise RuntimeError(f"it is {outcome.status}: {outcome.error}")


def await_stopped(process: subprocess.Popen[str], stop: str) -> None:
    """The same, from the parent."""
    process.communicate()
    if process.returncode != (-signal.SIGKILL if stop == "kill" else 0):
        raise RuntimeError(f"preparing ended with {process.returncode}")


def spread(values: Sequence[float], scale: float = 1, unit: str = "") -> str:
    """The median, and the range of the rounds."""
    low, middle, high = min(values) * scale, median(values) * scale, max(values) * scale
    return f"{middle:.4g}{unit} ({low:.4g} to {high:.4g})"
