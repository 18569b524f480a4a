"""`ls`: all workspaces, the damaged ones too, and nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from rich.cells import cell_len

from satchel.runtime.cli import output

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


def test_the_group_and_the_priority_are_not_shown_where_there_are_any(make: Make, cli: Cli, tmp_path: Path) -> None:
    urgent = make(name="urgent", extra="group: customer-a\npriority: 10\n")
    plain = make(name="plain")
    assert "priority" not in cli("ls", plain).stdout + cli("status", plain).stdout
    rows = {line.split()[0]: line.split() for line in cli("ls", tmp_path).stdout.splitlines()}
    assert rows["folder"][-2:] == ["group", "priority"]
    assert (rows[str(urgent)][-2:], rows[str(plain)][-2:]) == (["customer-a", "10"], ["-", "0"])
    assert "group     customer-a\npriority  10\n" in cli("status", urgent).stdout
    told = [*data_of(cli("ls", "--json", tmp_path)), data_of(cli("status", "--json", urgent))]
    assert [(each["group"], each["priority"]) for each in told] == [(None, 0), ("customer-a", 10), ("customer-a", 10)]


def test_runs_that_nobody_asked_for_are_listed(make: Make, cli: Cli, tmp_path: Path) -> None:
    """By the filters and the orders of the page."""
    done, asking = make(name="done"), make(ASKING, name="asking")
    make(name="new")
    cli("run", done)
    cli("run", asking)

    def names(*options: str) -> list[str]:
        return [os.path.basename(each["folder"]) for each in data_of(cli("ls", "--json", *options, tmp_path))]

    assert names() == ["asking", "done", "new"]
    assert names("--wanted") == ["asking"] and names("--state", "new", "--state", "completed") == ["done", "new"]
    assert names("--sort", "need") == ["asking", "new", "done"] and names("--sort", "-run") == ["new", "done", "asking"]
    assert names("--since", "1d", "--sort", "spent") == ["done", "asking"] and names("--before", "1d") == []
    assert names("--search", "WAITING") == ["asking"] and names("--agent", "other*") == names("--spent", "1") == []
    (told,) = data_of(cli("ls", "--json", "--wanted", tmp_path))
    assert told["wanted"] == "an answer: d1" and told["usage"]["items"] == 0
    assert "0 of 3 workspaces" in cli("ls", "--spent", "1", tmp_path).stderr
    for mistake, meant in (
        (("--state", "complete"), "Did you mean 'completed'?"),
        (("--sort", "spend"), "Did you mean 'spent'?"),
        (("--since", "soon"), "is not a time"),
    ):
        refused = cli("ls", *mistake, tmp_path)
        assert refused.exit_code == 2 and meant in refused.stderr


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


@pytest.mark.parametrize("screen", [0, 40, 12])
def test_a_row_is_wider_than_the_terminal_or_its_columns_are_not_below_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], screen: int
) -> None:
    monkeypatch.setattr(output, "columns", lambda stream: screen)
    rows = [("runs/" + "long" * 20, "waiting", "7"), ("日本/é\u0301", "new", "-"), ("a\x1b[31m", "paused", "1")]
    output.print_table(("folder", "state", "inbox"), rows)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all("\x1b" not in line and line == line.rstrip() for line in lines)
    if screen:
        assert all(cell_len(line) <= screen for line in lines)
    else:
        assert rows[0][0] in lines[1]
    if screen != 12:  # where not all columns fit
        words = ("state", "waiting", "new", "paused")
        assert len({cell_len(line[: line.index(word)]) for line, word in zip(lines, words, strict=True)}) == 1
