"""`check`: finds what is wrong with any file, foresees an opening, and touches nothing."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from satchel.workspace.store import DiskStore

from .conftest import ASKING, PLAIN, SLOW, Cli, Make, contents, data_of

Started = Callable[..., subprocess.Popen[str]]


def test_a_sound_workspace_is_faulted(make: Make, cli: Cli) -> None:
    folder = make()
    assert cli("check", folder).exit_code == 0
    cli("run", folder)
    before = contents(folder)
    result = cli("check", folder)
    assert (result.exit_code, result.stdout.startswith("no problems: demo-1a2b")) == (0, True), result.output
    assert contents(folder) == before
    told = data_of(cli("check", "--json", folder))
    assert told.pop("abilities")["lock"] is True
    assert told == {"url": str(folder), "ok": True, "problems": [], "planned": [], "same_run_id": [], "questions": []}


def test_a_copy_next_to_it_is_not_named(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make()
    make(name="another")
    shutil.copytree(folder, tmp_path / "copy")
    shutil.copytree(folder, os.fsdecode(os.fsencode(tmp_path) + b"/z\xff\x1b[31m"))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/workspace.yaml").write_text("demo-1a2b: [")
    result = cli("check", folder)
    told = " ".join(result.stdout.split())
    assert result.exit_code == 0 and f"have the run_id demo-1a2b: {folder}, {tmp_path / 'copy'}, " in told
    assert "\x1b" not in told
    assert data_of(cli("check", "--json", folder))["same_run_id"][0] == str(tmp_path / "copy")


def test_a_folder_that_may_not_be_listed_fails_a_check(
    make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, scandir = make(), os.scandir

    def denied(path: str) -> object:
        if path == str(tmp_path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    assert cli("check", folder).exit_code == 0


def test_two_copies_that_were_put_together_are_in_order(make: Make, cli: Cli, tmp_path: Path) -> None:
    """Although a newer checkpoint covers what one of them did, and an opening would not read it."""
    a, b = make(ASKING), tmp_path / "b"
    cli("run", a)
    shutil.copytree(a, b)
    cli("recover", a)
    cli("recover", b, "--adopt")
    cli("recover", b)
    mine = max((a / "journal").iterdir()).name
    for path in (*(b / "journal").iterdir(), *(b / "checkpoints").glob("*.json")):
        if path.name != mine:
            shutil.copy(path, a / path.parent.name)
    result = cli("check", a)
    told = " ".join(result.stdout.split())
    assert result.exit_code == 2 and f"These belong together: journal/{max((b / 'journal').iterdir()).name}, " in told
    assert f"; these: journal/{mine} (up to record" in told
    assert "two histories" in cli("recover", a, "--adopt").output and "two histories" in cli("log", a).output


def test_an_open_question_is_a_fault_or_is_hidden(make: Make, cli: Cli) -> None:
    folder = make(ASKING)
    cli("run", folder)
    result = cli("check", folder)
    assert result.exit_code == 0 and "Has it happened?" in result.stdout
    assert data_of(cli("check", "--json", folder))["questions"][0]["id"] == "d1"


def test_after_a_kill_it_foresees_nothing(make: Make, started: Started, cli: Cli) -> None:
    folder = make(SLOW)
    process = started(folder)
    process.kill()
    process.communicate()
    with min((folder / "journal").iterdir()).open("ab") as file:
        file.write(b'{"seq":')
    before = contents(folder)
    result = cli("check", folder)
    assert result.exit_code == 0, result.output
    assert "torn tail" in result.stdout and "would be kept in recovered/" in result.stdout
    assert re.search(r"^no problems: .*, interrupted$", result.stdout, re.MULTILINE), "as `status` says"
    assert contents(folder) == before


Spoil = Callable[[Path], object]


def _edit(name: str, old: str, new: str) -> Spoil:
    def spoil(folder: Path) -> None:
        path = next(folder.glob(name))
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return spoil


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("spoil", "file", "said"),
    [
        (_edit("workspace.yaml", "agent: ", "agnet: "), "workspace.yaml", "line 3"),
        (_edit("workspace.yaml", "demo-1a2b", "a: b: c"), "workspace.yaml", "line 2"),
        (
            _edit("state.json", '"status": "waiting"', '"status": "asleep"'),
            "state.json",
            "`status` can't be changed here",
        ),
        (_edit("state.json", '"data": {}', '"data": {]'), "state.json", "line"),
        (_edit("todo.md", "[/] mail", "[?] mail"), "todo.md", "line 1: found the mark"),
        (_edit("steps/*/*.json", '"in_doubt"', '"dunno"'), "steps/", "`status` can't be changed here"),
        (_edit("journal/*.jsonl", '"scope.begun"', '"scope.begum"'), "journal/", "checksum"),
        (_edit("checkpoints/*.json", '"attempt":1', '"attempt":2'), "checkpoints/", "hash does not match"),
    ],
)
def test_a_spoiled_file_is_overlooked(make: Make, cli: Cli, spoil: Spoil, file: str, said: str) -> None:
    folder = make(ASKING)
    cli("run", folder)
    spoil(folder)
    before = contents(folder)
    result = cli("check", folder)
    assert result.exit_code == 2
    found = [line for line in result.stdout.splitlines() if line.startswith(f"wrong   {file}")]
    assert any(said in line for line in found), result.output
    assert contents(folder) == before
    problems = data_of(cli("check", "--json", folder))["problems"]
    assert problems and all(set(each) == {"file", "place", "found", "expected", "remedy"} for each in problems)


def test_a_changed_or_missing_output_is_overlooked(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    (folder / "outputs/1.txt").write_text("forged")
    (folder / "outputs/2.txt").unlink()
    out = cli("check", folder).stdout
    assert "wrong   outputs/1.txt: found 6 bytes" in out and "wrong   outputs/2.txt: found no such file" in out


def test_the_agents_own_schema_is_not_asked(make: Make, cli: Cli) -> None:
    source = """
from dataclasses import dataclass
from satchel import agent

@dataclass
class State:
    count: int = 0

@agent(state=State)
async def main(run):
    pass
"""
    folder = make(source)
    cli("run", folder)
    _edit("state.json", '"count": 0', '"count": "many"')(folder)
    out = cli("check", folder).stdout
    assert "data.count" in out and "whole number" in out


def test_a_line_that_is_not_a_message_is_named(make: Make, cli: Cli) -> None:
    folder = make()
    (folder / "messages.jsonl").write_text('{"role":"user","content":[]}\n')
    cli("run", folder)
    good = (folder / "messages.jsonl").read_text()
    for bad, said in (
        ('{"seq":"2","at":"2026-01-01T00:00:00.000Z","role":"user","content":1}', "line 2 (seq)"),
        ('{"at":"2026-01-01T00:00:00.000Z","role":"user"}', "line 2 (content)"),
        ('{"seq":2,"at":"yesterday","role":"user","content":1}', "line 2 (seq)"),
        ("[" * 100_000, "line 2"),
    ):
        (folder / "messages.jsonl").write_text(f"{good}{bad}\n")
        out = cli("check", folder).stdout
        assert said in out and "messages.jsonl" in out, out
    (folder / "messages.jsonl").write_text(good + '{"seq":2,"at"')
    assert "messages.jsonl, line" not in cli("check", folder).stdout, "an unfinished last line is what a crash leaves"


def test_a_hostile_workspace_ends_it(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    (folder / ".satchel/schemas/data.json").write_text(json.dumps({"$ref": "http://example.com/x"}))
    (folder / "messages.jsonl").write_bytes(b"\xff\xfe\n")
    for name in ("recovered/x/1.md", "partials/x/1.md", "steps/x/1.json"):
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"---\n\x00\xff")
    (folder / "outputs/1.txt").unlink()
    (folder / "outputs/1.txt").symlink_to("/etc/passwd")
    result = cli("check", folder)
    assert result.exit_code == 2
    for said in ("messages.jsonl", "recovered/x/1.md", "steps/x/1.json", "symbolic link", "data.json"):
        assert said in result.stdout, result.stdout
    assert "root:" not in result.output


def tree_hash(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(f"{path} {path.lstat().st_mtime_ns} {path.lstat().st_mode}\0".encode())
        found.update(path.read_bytes() if path.is_file() else b"")
    return found.hexdigest()


EDITS: list[tuple[str, Spoil, int, str]] = [
    ("an untick", _edit("todo.md", "[x] say a", "[ ] say a"), 0, "note todo.md: item 1 ('say a') will be done again"),
    ("data", _edit("state.json", '"data": {}', '"data": {"a": 1}'), 0, "note    state.json: data.a is now 1"),
    (
        "settings",
        _edit("workspace.yaml", "agent.py:main\n", "agent.py:main\nsettings: {a: 1}\n"),
        0,
        "note    workspace.yaml: settings.a is now 1",
    ),
    ("a missing file", lambda folder: (folder / "todo.md").unlink(), 0, "note    todo.md was missing; it is restored"),
    ("a refused one", _edit("state.json", '"attempt": 1', '"attempt": 2'), 2, "wrong   state.json: `attempt` can't be"),
    ("a contradiction", lambda folder: (folder / "todo.md").write_text("# Nothing\n"), 2, "satchel merge"),
    ("no journal", lambda folder: shutil.rmtree(folder / "journal"), 0, "note    the journal is missing; the run"),
]


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("command", ["check", "status", "merge"])
@pytest.mark.parametrize(("spoil", "code", "said"), [each[1:] for each in EDITS], ids=[each[0] for each in EDITS])
def test_an_edit_is_not_foreseen_or_something_is_changed(
    make: Make, cli: Cli, spoil: Spoil, code: int, said: str, command: str
) -> None:
    folder = make(PLAIN + '\n__import__("pathlib").Path(__file__).with_name("imported").write_text("")\n')
    cli("run", folder)
    (folder / "imported").unlink()
    spoil(folder)
    before = tree_hash(folder)
    result = cli(command, folder)
    assert tree_hash(folder) == before and not (folder / "imported").exists()
    if command == "check":
        told = " ".join(result.stdout.split())
        assert result.exit_code == code and " ".join(said.split()) in told, result.output


def test_a_time_that_never_comes_is_overlooked(make: Make, cli: Cli) -> None:
    workspace = make(PLAIN)
    with (workspace / "workspace.yaml").open("a") as file:
        file.write("schedule:\n  - cron: 0 7 31 2 *\n")
    done = cli("check", workspace)
    assert done.exit_code == 2
    assert "(schedule[0].cron): found '0 7 31 2 *' with a bad day-of-month" in " ".join(done.stdout.split())


def test_a_begun_item_without_its_journal_is_called_in_order(make: Make, cli: Cli) -> None:
    folder = make(ASKING)
    cli("run", folder)
    for name in ("journal", "checkpoints"):
        shutil.rmtree(folder / name)
    before = tree_hash(folder)
    result = cli("check", folder)
    assert result.exit_code == 2 and "was begun, and the journal" in result.stdout
    assert "was begun, and the journal" in " ".join(cli("status", folder).stdout.split())
    assert tree_hash(folder) == before
    assert cli("resume", folder).exit_code == 4


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_lock_that_can_not_be_had_is_guaranteed(
    make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As on NFS without its lock service. The run is refused there, too, and not said to be another process's."""
    folder = make()
    before = contents(folder)

    def refuse(file: object, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    result = cli("check", folder)
    assert result.exit_code == 2 and "guaranteed by a lock" not in result.stdout
    assert f"can't be locked: {os.strerror(number)}" in result.stdout and "no run starts" in result.stdout
    assert contents(folder) == before
    told = data_of(cli("check", "--json", folder))
    assert told["abilities"]["lock"] is False and not told["ok"]
    for words in (("check", "--storage", folder), ("run", "--in-process", folder)):
        result = cli(*words)
        assert result.exit_code == 8 and os.strerror(number) in result.output, result.output
        assert "another process" not in result.output and "a bucket" in result.output


def test_the_storage_of_a_folder_is_not_tried_or_left_changed(make: Make, tmp_path: Path, cli: Cli) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder in (empty, make()):
        before = contents(folder)
        result = cli("check", "--storage", folder)
        assert result.exit_code == 0 and "a test lock worked" in result.stdout, result.output
        assert contents(folder) == before


def test_who_can_look_into_a_folder_is_not_told(tmp_path: Path, cli: Cli) -> None:
    tmp_path.chmod(0o750)
    assert "the group of the folder can look into it" in cli("check", "--storage", tmp_path).stdout
    assert data_of(cli("check", "--storage", "--json", tmp_path))["exposure"]["group"] is True


def test_a_folder_that_can_not_be_written_passes_the_test_of_its_storage(cli: Cli) -> None:
    result = cli("check", "--storage", "/proc/self")  # which not even root may write
    assert result.exit_code == 8 and "can't be" in result.output and "worked" not in result.output, result.output


def test_a_lock_that_another_process_has_is_a_fault(make: Make, cli: Cli) -> None:
    folder = make()
    with DiskStore(folder).lock():
        assert cli("check", folder).exit_code == 0
    with (folder / "workspace.yaml").open() as file:  # by some other program
        fcntl.flock(file, fcntl.LOCK_EX)
        assert cli("check", folder).exit_code == 0


def test_a_flipped_byte_that_a_checkpoint_covers_passes_without_a_word(make: Make, cli: Cli) -> None:
    """Nothing depends on it, so the run goes on; but it is told."""
    folder = make(ASKING)
    assert cli("run", folder).exit_code == 4
    (path,) = (folder / "journal").iterdir()
    data = path.read_bytes()
    at = data.index(b'"mail the report"') + 3
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    for words in (("status",), ("recover",)):
        said = " ".join(cli(*words, folder).output.split())
        assert "of the journal is damaged; the checkpoint" in said, words
    checked = data_of(cli("check", "--json", folder))
    assert not checked["ok"] and any(path.name in str(problem) for problem in checked["problems"])
    assert cli("answer", folder, "d1", "done", "--result", '"sent"').exit_code == 0
    assert cli("resume", folder).exit_code == 0
