"""`new` and `serve` from Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import warm
from cli.conftest import Make, contents

import satchel
from satchel.workspace.base.errors import UsageError
from satchel.workspace.formats.definition import parse


def test_a_new_workspace_is_not_that_of_the_template(make: Make, tmp_path: Path) -> None:
    source = make(extra="settings:\n  limit: 3\n  mail: {port: 25}\n")
    satchel.open(source).run()
    made = satchel.new(source, tmp_path / "new", settings={"limit": 5, "mail.port": 2525})
    assert (made.folder, made.template) == (str(tmp_path / "new"), "demo")
    assert made.settings == {"limit": 5, "mail": {"port": 2525}} and made.run_id.startswith("demo-")
    assert sorted(contents(tmp_path / "new")) == [
        str(tmp_path / f"new/{name}") for name in (".gitignore", "agent.py", "workspace.yaml")
    ]
    described = parse((tmp_path / "new/workspace.yaml").read_text())
    assert (described.run_id, described.settings) == (made.run_id, made.settings)
    assert satchel.open(made.folder).status().state == "new"
    with pytest.raises(UsageError, match="is not empty"):
        satchel.new(source, tmp_path / "new")


def test_a_setting_that_is_none_leaves_a_folder(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no setting 'limt'"):
        satchel.new(make(extra="settings:\n  limit: 3\n"), tmp_path / "new", settings={"limt": 5})
    assert not (tmp_path / "new").exists()


def test_what_is_due_is_not_run(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", warm.Popen)
    for name in ("runs/a", "runs/b"):
        make(name=name)
    satchel.open(tmp_path / "runs/b").pause()
    told: list[tuple[str, str]] = []
    satchel.serve(tmp_path / "runs", once=True, tell=lambda event: told.append((event.kind, event.folder)))
    assert [each.state for each in satchel.ls(tmp_path / "runs")] == ["completed", "paused"]
    assert {kind for kind, folder in told if folder.endswith("a")} >= {"started", "completed"}
