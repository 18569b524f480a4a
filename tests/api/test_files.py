"""The readable files of a run: which a program gets to show, and which not."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.conftest import PLAIN, Make

import satchel
from satchel import UsageError
from satchel.workspace.base.errors import InvalidFile


def test_a_readable_file_is_not_listed(make: Make) -> None:
    folder = make(PLAIN)
    handle = satchel.open(folder)
    assert [each.path for each in handle.files.list()] == ["workspace.yaml"]
    handle.run()
    (folder / "notes.txt").write_text("mine")
    (folder / "outputs/.hidden").write_text("hidden")
    found = {each.path: each.bytes for each in handle.files.list()}
    assert found.keys() >= {"workspace.yaml", "todo.md", "state.json", "outputs/1.txt", "outputs/2.txt"}
    assert not found.keys() & {"agent.py", "notes.txt", "outputs/.hidden"}
    assert not [path for path in found if path.startswith((".", "journal"))]
    assert list(found) == sorted(found)
    for path, size in found.items():
        assert len(handle.files.read(path)) == size == (folder / path).stat().st_size


def test_a_file_is_read_that_is_not_listed(make: Make, tmp_path: Path) -> None:
    folder = make(PLAIN)
    handle = satchel.open(folder)
    handle.run()
    (tmp_path / "secret").write_text("secret")
    (folder / "outputs/link").symlink_to(tmp_path / "secret")
    for path in ("agent.py", "../secret", "outputs", "journal/000000000001.jsonl", ".satchel/lease.json", "none", ""):
        with pytest.raises(UsageError):
            handle.files.read(path)
    (folder / "outputs/code.txt").symlink_to("../agent.py")
    (folder / "outputs/inside").symlink_to(folder)
    (folder / "outputs/journal").symlink_to("../journal")
    (folder / "outputs/.git").mkdir()
    (folder / "outputs/.git/config").write_text("secret")
    inside = ("agent.py", "todo.md", "outputs/1.txt", "journal/000000000001.jsonl")
    links = [f"outputs/inside/{path}" for path in inside] + ["outputs/journal/000000000001.jsonl"]
    for path in (*links, "outputs/.git/config"):
        with pytest.raises(UsageError, match="is no readable file of this run"):
            handle.files.read(path)
        assert path not in [each.path for each in handle.files.list()]
    for path in ("outputs/link", "outputs/code.txt"):
        with pytest.raises(UsageError, match="is a symbolic link"):
            handle.files.read(path)
    (folder / "outputs/1.txt").write_text("x" * 11)
    with pytest.raises(UsageError, match="has 11 bytes, and at most 10 are read at once"):
        handle.files.read("outputs/1.txt", limit=10)


def test_a_refused_edit_and_its_reasons_can_not_be_read(make: Make) -> None:
    folder = make(PLAIN)
    handle = satchel.open(folder)
    handle.run()
    (folder / "state.json").write_text("{")
    with pytest.raises(InvalidFile):
        handle.recover()
    (reasons,) = handle.status().refused
    assert "state.json" in handle.files.read(reasons).decode()
    kept = handle.files.read("state.rejected.json")
    assert kept == b"{"
    assert {reasons, "state.rejected.json"} <= {each.path for each in handle.files.list()}
