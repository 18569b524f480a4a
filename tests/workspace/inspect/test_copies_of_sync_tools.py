"""What sync tools leave where two machines have changed one file."""

from __future__ import annotations

from pathlib import Path

import pytest

import satchel
from satchel import InboxTask, Run, agent, run
from satchel.workspace.inspect.discovery import SyncCopy, sync_copies
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
        ("inbox/order (Ada's conflicted copy 2026-11-23).md", "inbox/order.md"),
        ("inbox/order.sync-conflict-20261123-065320-K3XJ2QB.md", "inbox/order.md"),
        ("inbox/order_conflict-20261123-065320.yaml", "inbox/order.yaml"),
        ("inbox/order.md.conflict1", "inbox/order.md"),
        ("inbox/order-DESKTOP-1A2B3C4.md", "inbox/order.md"),
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
        "inbox/refund (conflict with Bob).md",
        "inbox/ask for the conflicted copy.md",
        "inbox/for-LAPTOP-7.md",
        "approvals/a1.yaml",
        "approvals/a1.rejected.yaml",
        "conflicts/todo.theirs.md",
        "outputs/todo (1).md",
        "steps/3-a-conflict/01-look.json",
        "steps/3-a-conflict/02-look.json",
        "checkpoints/000000000017-a-conflict.json",
    ]
    assert found(tmp_path, *names) == []


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("name", "is_taken"),
    [
        ("order.sync-conflict-20261123-065320-K3XJ2QB.md", False),
        ("order (Ada's conflicted copy 2026-11-23).yaml", False),
        ("order (SFConflict ada@example.org 2026-11-23-06-53-20).md", False),
        ("order (case clash from ada).md", False),
        ("order 2.md", True),
        ("order (1).md", True),
        ("order-DESKTOP-1A2B3C4.md", True),
        ("refund (conflict with Bob).md", True),
    ],
)
def test_a_copy_becomes_a_task_or_a_task_is_left(tmp_path: Path, name: str, is_taken: bool) -> None:
    (tmp_path / "workspace.yaml").write_text("format: 1\nrun_id: r\nagent: agent.py:main\n")
    taken: list[str] = []

    async def work(run: Run, task: InboxTask) -> None:
        taken.append(task.name)

    @agent
    async def main(run: Run) -> None:
        await run.inbox.each(work)

    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox/order.md").write_text("the order")
    (tmp_path / "inbox" / name).write_text("the order")
    assert run(tmp_path, main).status == "completed"
    assert sorted(taken) == sorted(["order.md", *[name] * is_taken])
    complaints = satchel.open(tmp_path).status().complaints
    assert any(f"inbox/{name} looks like" in told and "does not take it" in told for told in complaints) is not is_taken
    assert run(tmp_path, main).status == "completed" and len(taken) == 1 + is_taken, "it is entered again for a copy"
    assert not satchel.open(tmp_path).check().problems
