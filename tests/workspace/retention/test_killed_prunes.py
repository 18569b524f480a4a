"""`satchel prune`, killed before a third of its calls to the disk: the run loses nothing, and the next one finishes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel.runtime.api import Handle
from satchel.workspace.inspect import look
from satchel.workspace.state import prompts
from satchel.workspace.store import DiskStore
from satchel.workspace.store.syscalls import Syscalls

from .test_pruning import _little_is_much, main, plan_of, ran, ruled

__all__ = ["_little_is_much"]

SEED = int(os.environ.get("SATCHEL_SEED") or 1)
CALLS = ("unlink", "rename", "link", "sync", "sync_data", "write", "sync_folder")


class Killed(BaseException):
    pass


def lived(folder: Path) -> None:
    """A completed run with something of each kind that a prune removes."""
    store = ran(folder, ["one large", *plan_of(12), "three large effect"])
    handle = satchel.open(folder)
    for number in range(4):
        handle.send(f"task {number}")
        handle.run(main)
    for number in range(1, 4):
        kept = "todo.rejected" + (f"-{number}" if number > 1 else "")
        for path in (f"{kept}.md", f"{kept}.txt", f"inbox/done/{number}.md", f"recovered/1-one/0{number}-read-1.md"):
            store.replace(path, b"x")
            os.utime(folder / path, (1e9 + number,) * 2)
    store.replace(f"{prompts.KEPT}/{prompts.version_of(b'old')}.md", b"old")
    ruled(store, "{history: 1, checkpoints: 1, inbox: 1, rejected: 1, recovered: 1}")


def others(folder: Path) -> set[str]:
    """The files that a prune is about, without the journal and the checkpoints."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {path for path in found if path.startswith(("todo.rej", "inbox/done", "recovered", ".satchel/prompts"))}


def problems(handle: Handle) -> list[Any]:
    """Without those of the recovered texts, which are no real ones here."""
    return [each for each in handle.check().problems if not each.file.startswith("recovered/")]


@pytest.mark.slow
def test_a_killed_prune_loses_something_or_is_never_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    lived(folder)
    planned = satchel.open(folder).prune(dry_run=True)
    assert {*planned.files} == {
        ".",
        ".satchel/blobs",
        ".satchel/prompts",
        "checkpoints",
        "inbox/done",
        "journal",
        "recovered",
    }, "the test is about all of them"
    left_to_go = [0]

    def counted(call: Any) -> Any:
        def counting(self: Any, *words: Any, **more: Any) -> Any:
            left_to_go[0] -= 1
            if left_to_go[0] == 0:
                raise Killed
            return call(self, *words, **more)

        return counting

    for name in CALLS:
        monkeypatch.setattr(Syscalls, name, counted(getattr(Syscalls, name)))
    before = look(DiskStore(folder)).moment
    shutil.copytree(folder, tmp_path / "kept")
    satchel.open(folder).prune()
    expected = others(folder)
    for number in range(1 + SEED % 6, 1000, 6):
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "kept", folder)
        left_to_go[0] = number
        handle = satchel.open(folder)
        try:
            handle.prune()
            break
        except Killed:
            left_to_go[0] = 0
        seen = look(DiskStore(folder)).moment
        assert seen.root.data == before.root.data and not problems(handle), number
        assert handle.recover().status == "completed"
        handle.prune()
        left = handle.prune(dry_run=True)
        assert {*left.files} <= {"checkpoints", "journal"}, (number, left.paths)
        assert others(folder) - {"todo.rejected.md", "todo.rejected-2.md"} == expected, number
        assert not problems(handle) and handle.run(main).status == "completed"
    assert number > 40
