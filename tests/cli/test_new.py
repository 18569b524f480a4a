"""`new`: a whole workspace or none, and nothing of another run in it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from satchel.runtime.launch.templates import File, _write, samples, settings_of, value_of
from satchel.workspace.base.errors import UsageError
from satchel.workspace.formats import yaml_reader
from satchel.workspace.formats.definition import parse
from satchel.workspace.inspect import load

from .conftest import ASKING, Cli, Make, contents

PARENT = """
from satchel import agent, effect

@effect
def send(text: str) -> str:
    raise TimeoutError("no answer")

async def work(run, item):
    await send(item.text)

@agent
async def reader(run):
    await run.plan(None, ["read it"])
    await run.todo.each(work)

@agent
async def main(run):
    await run.spawn(reader, "reader")
"""
SETTINGS = "# what it is\nsettings:\n  top: 5  # how many\n  folder: docs\n  model:\n    name: x\n"


def test_state_of_the_old_run_is_copied(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make(ASKING)
    (folder / "docs").mkdir()
    (folder / "docs/a.md").write_text("a document")
    (folder / "out").symlink_to("/etc")
    (folder / "tool.sh").write_text("#!/bin/sh\n")
    (folder / "tool.sh").chmod(0o755)
    cli("run", folder)
    new = tmp_path / "deep/er/new"
    result = cli("new", folder, new)
    assert result.exit_code == 0 and result.stdout.splitlines()[-1] == f"next: satchel run {new}"
    assert sorted(contents(new)) == [
        str(new / name) for name in (".gitignore", "agent.py", "docs/a.md", "tool.sh", "workspace.yaml")
    ]
    assert os.access(new / "tool.sh", os.X_OK)
    run_id = parse((new / "workspace.yaml").read_bytes()).run_id
    assert run_id.startswith("demo-") and run_id != "demo-1a2b" and len(run_id) == 15
    assert cli("run", new).exit_code == 4


def test_what_sub_agents_have_done_and_what_was_sent_is_copied(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make(PARENT)
    (folder / "agents").mkdir()
    (folder / "agents/helper.py").write_text("# code of its own\n")
    assert cli("run", folder).exit_code == 4
    cli("send", folder, "one more thing")
    assert {"state.json", "steps", "todo.md"} <= {path.name for path in (folder / "agents/reader").iterdir()}
    (folder / "moved.yaml").write_text("format: 1\n")
    assert cli("new", folder, tmp_path / "new").exit_code == 0
    assert sorted(contents(tmp_path / "new")) == [
        str(tmp_path / "new" / name) for name in (".gitignore", "agent.py", "agents/helper.py", "workspace.yaml")
    ]


def test_git_is_offered_what_a_run_keeps(make: Make, cli: Cli, tmp_path: Path) -> None:
    new = tmp_path / "new"
    cli("new", make(PARENT), new)
    cli("run", new)
    assert {"agents", "journal", "state.json", ".satchel"} <= {path.name for path in new.iterdir()}
    subprocess.run(["git", "init", "-q", new], check=True)
    shown = ["git", "-C", new, "ls-files", "--others", "--exclude-standard"]
    found = subprocess.run(shown, check=True, capture_output=True, text=True).stdout.splitlines()
    assert found == [".gitignore", "agent.py", "agents/reader/todo.md", "workspace.yaml"]


def test_the_gitignore_of_a_template_is_replaced(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make()
    (folder / ".gitignore").write_text("/mine\n")
    cli("new", folder, tmp_path / "new")
    assert (tmp_path / "new/.gitignore").read_text() == "/mine\n"


def test_a_link_in_place_of_the_definition_is_followed(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make()
    (folder / "workspace.yaml").rename(tmp_path / "secret.yaml")
    (folder / "workspace.yaml").symlink_to(tmp_path / "secret.yaml")
    result = cli("new", folder, tmp_path / "new")
    assert result.exit_code == 2 and "a symbolic link" in result.stderr and not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["workspace.yaml", "data.bin"])
def test_a_file_larger_than_any_document_fills_the_memory(make: Make, cli: Cli, tmp_path: Path, name: str) -> None:
    folder = make()
    with open(folder / name, "ab") as file:
        file.truncate(1 << 40)
    result = cli("new", folder, tmp_path / "new")
    assert result.exit_code == 2 and f"{name}: " in result.stderr.replace(", as a whole", ""), result.stderr
    assert not (tmp_path / "new").exists()


def test_a_large_definition_is_parsed_at_every_look(make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, parsed = make(extra="settings: {a: [" + "x," * 500_000 + "]}\n"), []
    monkeypatch.setattr(yaml_reader, "read", lambda text, path: parsed.append(text))
    result = cli("status", folder)
    assert result.exit_code == 2 and "more than" in result.stderr and not parsed


def test_a_definition_is_read_more_than_once_for_one_look(
    make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read = make(), []
    monkeypatch.setattr(load.definition, "parse", lambda text: read.append(text) or parse(text))  # type: ignore[func-returns-value]
    for command in ("status", "check", "ls"):
        cli(command, folder if command != "ls" else folder.parent)
        assert len(read) == 1
        read.clear()


def test_a_plan_of_a_persons_own_is_not_copied(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make()
    (folder / "todo.md").write_text("- [ ] one\n")
    cli("new", folder, tmp_path / "new")
    assert (tmp_path / "new/todo.md").read_text() == "- [ ] one\n"


def test_settings_lose_comments_or_go_astray(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make(extra=SETTINGS)
    words = ["--set", "top=7", "--set", "folder=~/notes", "--set", "model.name=a: b #c"]
    assert cli("new", folder, tmp_path / "new", *words).exit_code == 0
    text = (tmp_path / "new/workspace.yaml").read_text()
    assert "top: 7  # how many" in text and "# what it is" in text
    assert parse(text).settings == {"top": 7, "folder": os.path.expanduser("~/notes"), "model": {"name": "a: b #c"}}


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("5", 5),
        ("0.5", 0.5),
        ("true", True),
        ("null", None),
        ("no", "no"),
        ("", ""),
        ("#fff", "#fff"),
        ("a #b", "a #b"),
        ("a: b", "a: b"),
        ("- x", "- x"),
        ("[a, 1]", ["a", 1]),
        ("{a: 1}", {"a": 1}),
        ('"5"', "5"),
        ("22:30", "22:30"),
        ("~user", "~user"),
        ("*", "*"),
        ("%", "%"),
        (" x ", " x "),
    ],
)
def test_a_value_is_read_otherwise_than_typed(typed: str, value: object) -> None:
    assert value_of(typed) == value and type(value_of(typed)) is type(value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "topp=1"], "did you mean 'top'"),
        (["--set", "zzz=1"], "its settings are top, folder, model"),
        (["--set", "top"], "is not KEY=VALUE"),
        (["--set", "top=abc"], "the setting 'top' is a number, and 'abc' is not"),
        (["--set", "top=true"], "the setting 'top' is a number, and True is not"),
        (["--set", "top=[1"], "--set, line 1"),
    ],
)
def test_a_refused_setting_leaves_a_folder(make: Make, cli: Cli, tmp_path: Path, words: list[str], said: str) -> None:
    result = cli("new", make(extra=SETTINGS), tmp_path / "new", *words)
    assert result.exit_code == 2 and said.lower() in result.stderr.lower()
    assert not (tmp_path / "new").exists()


def test_something_in_the_way_is_overwritten(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make()
    before = contents(tmp_path)
    for place, said in ((folder, "is not empty"), (folder / "agent.py", "is a file"), (folder / "agent.py/x", "made")):
        result = cli("new", folder, place)
        assert result.exit_code == 2 and said in result.stderr
    assert contents(tmp_path) == before


def test_an_empty_folder_is_refused(make: Make, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    assert cli("new", make(), tmp_path / "new").exit_code == 0


def test_a_failure_leaves_half_a_workspace(tmp_path: Path) -> None:
    files = [File("a/b.txt", b"x", None), File("a", b"there is a folder", None), File("workspace.yaml", b"", None)]
    with pytest.raises(UsageError):
        _write(str(tmp_path / "up/new"), files)
    assert os.listdir(tmp_path) == []


def test_an_unknown_template_is_not_explained(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "there is no template 'nope'" in cli("new", "nope", tmp_path / "new").stderr
    assert "has no workspace.yaml" in cli("new", tmp_path / "empty", tmp_path / "new").stderr
    assert cli("new").exit_code == 2


def test_a_sample_is_not_valid(cli: Cli, tmp_path: Path) -> None:
    listed = cli("new", "--list").stdout
    for sample in samples():
        assert sample.name in listed
        result = cli("new", sample.name, tmp_path / sample.name)
        assert result.exit_code == 0, result.output
        assert cli("check", tmp_path / sample.name).exit_code == 0


def test_an_input_of_a_new_run_is_lost(make: Make, cli: Cli, tmp_path: Path) -> None:
    source = make("from satchel import agent\nprint('imported')\n@agent\nasync def main(run, topic: str): ...\n")
    done = cli("new", source, tmp_path / "made", "--json", "--input", '{"topic": "tides"}')
    made = json.loads(done.stdout)
    assert made["input"] == {"topic": "tides"} and made["folder"] == str(tmp_path / "made")
    assert parse((tmp_path / "made/workspace.yaml").read_bytes()).input == {"topic": "tides"}
    refused = cli("new", source, tmp_path / "other", "--json", "--input", '{"topic": 7}')
    assert refused.exit_code == 2 and "'topic'" in json.loads(refused.stdout)["error"]["message"]
    assert cli("new", source, tmp_path / "other", "--input", "[1]").exit_code == 2
    assert not (tmp_path / "other").exists()
    assert {"name": "digest", "about": samples()[2].about()} in json.loads(cli("new", "--list", "--json").stdout)


def test_a_setting_has_no_comment() -> None:
    text = f"format: 1\nrun_id: a\nagent: agent.py:main\n{SETTINGS}  empty: {{}}\n  'a.b': 1\n"
    assert [(each.name, each.value, each.about) for each in settings_of(text)] == [
        ("top", 5, "how many"),
        ("folder", "docs", ""),
        ("model.name", "x", ""),
        ("empty", {}, ""),
        ("a.b", 1, ""),
    ]
    assert settings_of("format: 1\nrun_id: a\nagent: agent.py:main\n") == []
