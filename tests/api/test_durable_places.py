"""What a power failure can't take of a new place, once a command has told of it. The disk is the real one: a name or a
content counts as durable if it was there at a real sync of its folder or file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Make

import satchel
from satchel.runtime.api import Handle


class Durable:
    """What was there at the last sync of each folder, and of each file."""

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}
        self.sizes: dict[int, int] = {}

    def saw(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if os.path.isdir(path):
            self.names[path] = set(os.listdir(path))
        else:
            self.sizes[os.fstat(fd).st_ino] = os.fstat(fd).st_size

    def lacks(self, place: Path) -> list[str]:
        """What a power failure may take of a folder or file: its own name, and those above it that these tests made."""
        found = []
        for path in (place, *place.parents):
            if path.name in ("made", "base"):
                break
            if path.name not in self.names.get(str(path.parent), ()):
                found.append(f"the name {path}")
        for path in place.rglob("*") if place.is_dir() else [place]:
            inside = path.relative_to(place).as_posix()
            if path.is_dir() or not inside.startswith((".", "journal/", "workspace.yaml", "agent.py", "outputs/")):
                continue
            if inside.startswith(".satchel/") and not inside.startswith(".satchel/blobs/"):
                continue
            if self.sizes.get(path.stat().st_ino) != path.stat().st_size:
                found.append(f"the content of {inside}")
            for each in (path, *path.parents):
                if each == place:
                    break
                if each.name not in self.names.get(str(each.parent), ()):
                    found.append(f"the name {inside}")
        return found


@contextmanager
def watched() -> Iterator[Durable]:
    durable = Durable()
    with pytest.MonkeyPatch.context() as patched:
        for name in ("fsync", "fdatasync"):
            real = getattr(os, name)

            def sync(fd: int, real: Any = real) -> None:
                real(fd)
                durable.saw(fd)

            patched.setattr(os, name, sync)
        yield durable


WRITING = """
from satchel import agent

async def work(run, item):
    await run.output(f"{item.id}/{item.text}.txt", item.text)
    run.state[item.text] = "x" * 70_000

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["one", "two"])
    await run.todo.each(work)
"""

MAKERS: dict[str, Callable[[Handle, Path], Any]] = {
    "fork": lambda handle, to: handle.history.fork(to),
    "fork^2": lambda handle, to: handle.history.fork(to, at="^2"),
    "copy": lambda handle, to: handle.copy(to),
    "move": lambda handle, to: handle.move(to),
    "new": lambda handle, to: satchel.new(handle.url, to),
    "replay": lambda handle, to: handle.history.replay("^2", to),
    "export": lambda handle, to: handle.files.export(to),
}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("is_there", [False, True])
def test_a_power_failure_takes_what_a_command_has_told(make: Make, name: str, is_there: bool) -> None:
    """`is_there`: a killed process, or a person, has made the folders a moment ago."""
    handle = satchel.open(make(WRITING))
    assert handle.run().status == "completed"
    base = Path(handle.url).parent / "made"
    base.mkdir()
    to = base / "a/b/run.zip" if name == "export" else base / "a/b/run"
    if is_there or name == "export":
        (to.parent if name == "export" else to).mkdir(parents=True)
    with watched() as durable:
        MAKERS[name](handle, to)
    lacks = durable.lacks(to)
    if name == "export":  # the folder is the person's
        lacks = [each for each in lacks if not each.startswith("the name") or each == f"the name {to}"]
    assert lacks == []


def test_a_power_failure_takes_a_run_that_has_just_been_made(make: Make) -> None:
    handle = satchel.open(make(WRITING))
    base = Path(handle.url).parent / "made"
    shutil.move(handle.url, base / "run")
    with watched() as durable:
        assert satchel.open(base / "run").run().status == "completed"
    assert "run" in durable.names[str(base)]
