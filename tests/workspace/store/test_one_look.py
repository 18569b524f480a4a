"""A folder for one look: it is listed again and again, or a look goes on with what is not there any more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from satchel.workspace.base import UsageError
from satchel.workspace.store import DiskStore, Entry, Syscalls, listed


class Counted(Syscalls):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def scan(self, path: str) -> dict[str, os.stat_result]:
        self.calls.append(f"scan {os.path.basename(path)}")
        return super().scan(path)

    def stat(self, path: str) -> os.stat_result:
        self.calls.append(f"stat {os.path.basename(path)}")
        return super().stat(path)


def test_each_question_lists_its_folder_again(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal/1.jsonl").write_text("12")
    (tmp_path / "workspace.yaml").write_text("1")
    disk = DiskStore(tmp_path, calls := Counted())
    expected = {path: disk.version(path) for path in ("workspace.yaml", "journal/1.jsonl", "journal", "gone", "a/b")}
    store = listed(disk)
    calls.calls.clear()
    for _ in range(3):
        assert [*store.list("journal")] == [Entry("journal/1.jsonl", 2)] and [*store.folders("")] == ["journal"]
        assert {path: store.version(path) for path in expected} == expected
    assert calls.calls.count("scan journal") == calls.calls.count(f"scan {tmp_path.name}") == 1
    assert "stat workspace.yaml" not in calls.calls


def test_a_look_after_a_refresh_shows_the_files_of_the_one_before(tmp_path: Path) -> None:
    store = listed(DiskStore(tmp_path))
    assert store.version("pause.yaml") is None and [*store.list("inbox")] == []
    (tmp_path / "pause.yaml").write_text("status: paused\n")
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox/a.md").write_text("A task")
    store.refresh()
    assert store.version("pause.yaml") and [*store.list("inbox")] == [Entry("inbox/a.md", 6)]


def test_a_look_follows_a_link_out_of_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a1.yaml").write_text("decision: yes")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/approvals").symlink_to("../out")
    store = listed(DiskStore(tmp_path / "run"))
    for _ in range(2):
        with pytest.raises(UsageError, match="outside the workspace"):
            next(store.list("approvals"))
        with pytest.raises(UsageError, match="outside the workspace"):
            store.read("approvals/a1.yaml")
