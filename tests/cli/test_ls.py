"""`ls`: all workspaces, the damaged ones too, and nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .conftest import ASKING, Cli, Make, data_of


def test_a_workspace_is_missed_or_made_up(make: Make, cli: Cli, tmp_path: Path) -> None:
    done, asking = make(name="a/deep/done"), make(ASKING, name="asking")
    make(name="new")
    make(name=".hidden/secret")
    make(name="new/inside")
    broken = make(name="broken")
    (broken / "workspace.yaml").write_text("a: b: c\n")
    (tmp_path / "link").symlink_to(done)
    (tmp_path / "loop").symlink_to(tmp_path)
    cli("run", done)
    cli("run", asking)
    told = data_of(cli("ls", "--json", tmp_path))
    assert {os.path.relpath(each["folder"], tmp_path): each["state"] for each in told} == {
        "a/deep/done": "completed",
        "asking": "waiting",
        "new": "new",
        "broken": "damaged",
    }
    rows = {line.split()[0]: line for line in cli("ls", tmp_path).stdout.splitlines()[1:]}
    assert "2/2" in rows[str(done)] and "an answer: d1" in rows[str(asking)]
    assert "damaged" in rows[str(broken)] and "check" in rows[str(broken)]


def test_one_hostile_workspace_hides_the_others(make: Make, cli: Cli, tmp_path: Path) -> None:
    make(name="good")
    bad = make(name="bad")
    (bad / "journal").symlink_to("/etc")
    states = {each["run_id"]: each["state"] for each in data_of(cli("ls", "--json", tmp_path))}
    assert states == {"good-1a2b": "new", "bad-1a2b": "damaged"}


def test_two_workspaces_of_one_run_id_are_not_named(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make(name="one")
    make(name="two")
    shutil.copytree(folder, tmp_path / "copy")
    told = {os.path.basename(each["folder"]): each["same_run_id"] for each in data_of(cli("ls", "--json", tmp_path))}
    assert told == {"copy": [str(folder)], "one": [str(tmp_path / "copy")], "two": []}
    said = cli("ls", tmp_path).stderr
    assert said.count("run_id one-1a2b") == 1 and f"{tmp_path / 'copy'}, {folder}. " in said


def test_an_empty_or_missing_root_is_an_error_or_silent(cli: Cli, tmp_path: Path) -> None:
    result = cli("ls", tmp_path)
    assert result.exit_code == 0 and "no workspaces under" in result.stderr
    assert data_of(cli("ls", "--json", tmp_path)) == []
    assert cli("ls", tmp_path / "missing").exit_code == 2
