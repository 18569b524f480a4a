"""Commands that look at an active run: what its process removes between the listing and the look is no fault."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel.runtime.api import Handle
from satchel.runtime.status import place
from satchel.workspace.base.errors import SatchelError
from satchel.workspace.store import DiskStore, Syscalls
from satchel.workspace.transfer import copy_files

RUN = """
from satchel import agent, effect, step

@step
async def think(text: str) -> str:
    return text * 40_000

@effect
async def send(text: str) -> str:
    return text

async def work(run, item):
    run.messages.add("user", item.text)
    await run.output(f"{item.id}.txt", item.text)
    run.state[item.text] = len(await think(item.text))
    await send(item.text)
    if item.text == "last":
        await run.ask("Go on?", wait_for=0)

@agent
async def child(run):
    if not run.todo.items:
        await run.plan(None, ["inner"])
    await run.todo.each(work)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["one", "two", "last"])
        await run.spawn(child, "child")
    await run.todo.each(work)
"""

PASSING = (".satchel/tmp/", ".satchel/running.json", "steps/", "partials/", "approvals/", "inbox/", "recovered/")
"""Below these, files come and go while a run is active, and no command needs them."""


class Vanishing(Syscalls):
    """The file of the `at`-th look at one is gone at that moment: of those that are read, and those in a listing."""

    def __init__(self, at: int):
        self._at, self.looks, self.gone = at, 0, ""

    def read(self, path: str, limit: int) -> tuple[bytes, os.stat_result]:
        self._look(path)
        return super().read(path, limit)

    def read_end(self, path: str, size: int) -> bytes:
        self._look(path)
        return super().read_end(path, size)

    def stat(self, path: str) -> os.stat_result:
        self._look(path)
        return super().stat(path)

    def link(self, source: str, target: str) -> None:
        self._look(source)
        super().link(source, target)

    def scan(self, path: str) -> dict[str, os.stat_result]:
        found = super().scan(path)
        for name in found:
            self._look(f"{path}/{name}")
        return found

    def _look(self, path: str) -> None:
        self.looks += 1
        if self.looks == self._at and os.path.isfile(path):
            os.unlink(path)
            self.gone = path


def in_order(seqs: list[int]) -> None:
    assert seqs == sorted(set(seqs)), "a record came twice"


LOOKS: dict[str, Callable[[Handle, Path], Any]] = {
    "status": lambda handle, to: handle.status(),
    "check": lambda handle, to: handle.check().problems,
    "fork": lambda handle, to: handle.history.fork(to),
    "export": lambda handle, to: handle.files.export(to.with_suffix(".zip")),
    "prune": lambda handle, to: handle.prune(dry_run=True),
    "log": lambda handle, to: in_order([row.line.seq for row in handle.history.log()]),
    "steps": lambda handle, to: handle.history.steps(),
    "blame": lambda handle, to: handle.history.blame(),
    "files": lambda handle, to: handle.files.list(),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vanishing") / "run"
    folder.mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: run-1\nagent: agent.py:main\nkeep: {history: 1}\n")
    (folder / "agent.py").write_text(RUN)
    handle = satchel.open(folder)
    for _ in range(3):  # each has a segment of the journal
        assert handle.run().status == "waiting"
    handle.send("a task")
    for path in (".satchel/tmp/77-1", "recovered/3-last/01-think-1-damaged.md", "inbox/done/old.md"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("text")
    return folder


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize(
    "most", [15, pytest.param(100, marks=pytest.mark.slow), pytest.param(1000, marks=pytest.mark.soak)]
)
def test_a_file_that_is_gone_at_a_look_is_a_bare_error(name: str, most: int, run: Path, tmp_path: Path) -> None:
    seed = int(os.environ.get("SATCHEL_SEED") or 1)
    print(f"seed {seed}")
    looks = looked(name, run, tmp_path, Vanishing(0)).looks
    for at in random.Random(seed).sample(range(1, looks + 1), min(looks, most)):
        looked(name, run, tmp_path, Vanishing(at))


def looked(name: str, run: Path, base: Path, calls: Vanishing) -> Vanishing:
    """Whatever is gone, a command does its work or says what is missing; if it needs no such file, it does its work."""
    folder, to = base / "copy", base / "to"
    shutil.copytree(run, folder)
    refused, found = None, None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(place, "open_store", lambda url, **_: DiskStore(url, calls))
        try:
            found = LOOKS[name](satchel.open(folder), to)
        except SatchelError as error:
            refused = error
    gone = calls.gone.removeprefix(f"{folder}/")
    if not gone or gone.startswith(PASSING):
        assert refused is None and not (name == "check" and found), (gone, refused, found)
    for path in (folder, to):
        shutil.rmtree(path, ignore_errors=True)
    to.with_suffix(".zip").unlink(missing_ok=True)
    return calls


def test_a_temporary_file_that_goes_during_a_walk_is_a_bare_error(tmp_path: Path) -> None:
    """A process makes and removes files as fast as it can, as one that runs the workspace does."""
    tmp = tmp_path / ".satchel/tmp"
    tmp.mkdir(parents=True)
    (tmp_path / "workspace.yaml").write_text("format: 1\nrun_id: run-1\nagent: agent.py:main\n")
    (tmp_path / "link").symlink_to("workspace.yaml")
    making = "import os,sys\nfor n in range(5000):\n p=f'{sys.argv[1]}/{n}'\n open(p,'x').close()\n os.unlink(p)"
    with subprocess.Popen([sys.executable, "-c", making, str(tmp)]) as process:
        walks = 0
        while process.poll() is None or walks < 10:
            assert [fault.path for fault in copy_files.unlisted(DiskStore(tmp_path))] == ["link"]
            walks += 1
    assert process.returncode == 0
