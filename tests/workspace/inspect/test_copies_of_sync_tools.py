"""What sync tools leave where two machines have changed one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.workspace.inspect.copies_of_sync_tools import SyncCopy, sync_copies
from satchel.workspace.store import DiskStore


def found(folder: Path, *paths: str) -> list[SyncCopy]:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    return [*sync_copies(DiskStore(folder), ("", "agents/left/"))]


@pytest.mark.parametrize(
    ("path", "of"),
    [
        ("todo (conflicted copy).md", "todo.md"),
        ("todo (Ada's conflicted copy 2026-11-23).md", "todo.md"),
        ("todo (conflicted copy 2026-11-23 065320).md", "todo.md"),
        ("state (SFConflict ada@example.org 2026-11-23-06-53-20).json", "state.json"),
        ("state.sync-conflict-20261123-065320-K3XJ2QB.json", "state.json"),
        ("pause_conflict-20261123-065320.yaml", "pause.yaml"),
        ("todo.md.conflict1", "todo.md"),
        ("workspace.conflict2.yaml", "workspace.yaml"),
        ("todo (1).md", "todo.md"),
        ("todo 2.md", "todo.md"),
        ("todo-DESKTOP-1A2B3C4.md", "todo.md"),
        ("agents/left/state (2).json", "agents/left/state.json"),
        ("journal/000000000017 (1).jsonl", "journal/000000000017.jsonl"),
        ("journal/000000000017.sync-conflict-20261123-065320-K3XJ2QB.jsonl", "journal/000000000017.jsonl"),
        ("approvals/a1 (conflicted copy).yaml", "approvals/a1.yaml"),
        ("steps/3-write/01-look (1).json", "steps/3-write/01-look.json"),
        ("inbox/order (Case Conflict).md", "inbox/order.md"),
    ],
)
def test_an_edit_lies_in_a_copy_that_a_sync_tool_has_made(tmp_path: Path, path: str, of: str) -> None:
    (copy,) = found(tmp_path, of, path)
    assert copy == SyncCopy(path, of)
    assert f"{path} looks like a sync tool's copy" in str(copy) and of in str(copy)


def test_files_of_a_person_and_of_the_runtime_are_taken_for_such_copies(tmp_path: Path) -> None:
    names = [
        "todo.md",
        "todo.rejected.md",
        "todo.rejected-2.md",
        "notes.md",
        "notes (1).md",
        "notes (conflicted copy).md",
        "inbox/task.md",
        "inbox/task (1).md",
        "inbox/task 2.md",
        "inbox/a conflict of interest.md",
        "approvals/a1.yaml",
        "approvals/a1.rejected.yaml",
        "conflicts/todo.theirs.md",
        "outputs/todo (1).md",
        "steps/3-a-conflict/01-look.json",
        "steps/3-a-conflict/02-look.json",
        "checkpoints/000000000017-a-conflict.json",
    ]
    assert found(tmp_path, *names) == []
