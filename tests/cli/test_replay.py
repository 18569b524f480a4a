"""`satchel replay`: what it prints, for people and for programs, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import satchel
from satchel.runtime.cli.group import group

from .conftest import Cli, Make, contents, data_of

WRITING = """
from satchel import agent, effect, step

@step
def ask(prompt: str, words: int) -> str:
    print("asking")
    return " ".join(prompt.split()[:words])

@effect
def post(text: str) -> str:
    return "posted"

async def work(run, item):
    run.spend(tokens=3)
    run.state[item.text] = await ask(run.prompt("note", what=item.text), run.settings["words"])
    await run.output("last.txt", run.state[item.text])
    if item.text == "dogs":
        await post(run.state[item.text])
    return len(run.state[item.text])

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Notes", ["cats", "dogs"])
    await run.todo.each(work)
"""


@pytest.fixture
def folder(make: Make) -> Path:
    folder = make(WRITING, extra="settings: {words: 2}\n")
    (folder / "prompts").mkdir()
    (folder / "prompts/note.md").write_text("Praise {{what}} much")
    assert satchel.open(folder).run().status == "completed"
    return folder


def test_what_the_replay_did_is_not_told(folder: Path, cli: Cli, tmp_path: Path) -> None:
    before, to = contents(folder), tmp_path / "again"
    new = tmp_path / "new.md"
    new.write_text("Blame {{what}} loudly")
    found = cli("replay", folder, "^1", "--set", f"prompt=@{new}", "--set", "words=3", "--into", to, "--quiet")
    assert found.exit_code == 0 and contents(folder) == before
    assert f"^1 ('cats') of {folder} again in {to}, from record " in found.stdout
    assert "set     words = 3, prompt note@" in found.stdout and "found   prompt note was " in found.stdout
    assert '~ ask("prompt":"Blame cats loudly","words":3)  "Praise cats" -> "Blame cats loudly"' in found.stdout
    assert '~ /cats  "Praise cats" -> "Blame cats loudly"' in found.stdout
    assert "~ outputs/last.txt  11 bytes -> 17 bytes" in found.stdout and "result  11 -> 17" in found.stdout
    assert "3 -> 3 tokens" in found.stdout and "no difference" not in found.stdout
    assert cli("replay", folder, "^1", "--into", to).exit_code == 2, "there is a run"
    same = cli("replay", folder, "^1", "--into", tmp_path / "same")
    assert "set     nothing" in same.stdout and "no difference" in same.stdout and "next: satchel resume" in same.stderr


def test_a_program_can_not_read_a_replay(folder: Path, cli: Cli, tmp_path: Path) -> None:
    words = ("replay", folder, "^2", "--json", "--into")
    found = cli(*words, tmp_path / "again", "--set", "prompt=Blame {{what}} much")
    said = data_of(found)
    assert found.exit_code == said["exit_code"] == 3 and (said["end"], said["data"]) == ("effect", None)
    assert [(pair.get("new", {}).get("result"), pair["kept"]) for pair in said["calls"]] == [
        ("Blame dogs", False),
        (None, True),
    ]
    assert "asking" in found.stderr, "what an agent prints is not JSON"
    told = cli("replay", folder, "^2", "--into", tmp_path / "told", "--set", "prompt=Blame {{what}} much").stdout
    assert "stopped before an effect: " in told and '= post("text":"Praise dogs")  not done again' in told
    refused = cli(*words, tmp_path / "third", "--set", "wrods=3")
    assert refused.exit_code == 2 and "Did you mean 'words'?" in data_of(refused)["error"]["message"]
    (folder / "agent.py").write_text(WRITING.replace("run.spend(tokens=3)", "1 / 0"))
    failed = cli("replay", folder, "^1", "--into", tmp_path / "failed")
    assert failed.exit_code in (1, 3) and "ZeroDivisionError" in failed.stdout


def test_items_and_prompts_are_not_completed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def completed(incomplete: str, *words: str) -> list[str]:
        found = ShellComplete(group, {}, "satchel", "_SATCHEL_COMPLETE").get_completions([*words], incomplete)
        return [item.value for item in found]

    for command in ("replay", "redo"):
        assert completed("^", command, str(folder)) == ["^1", "^2"]
    assert completed("", "replay", str(folder), "^1", "--set") == ["words=", "prompt.note=@"]
    assert completed("p", "replay", str(folder), "^1", "--set") == ["prompt.note=@"]
    assert completed("^", "replay", "s3://bucket/run") == []
    for words in (
        ("rewind", str(folder), "--to"),
        ("fork", str(folder), "there", "--at"),
        ("steps", str(folder), "--at"),
        ("fork", "--effects", str(folder), "--at"),
    ):
        assert completed("^", *words) == ["^1", "^2"], words
        assert [word[12:] for word in completed("0", *words)] == ["-start", "-stop"], words
    monkeypatch.chdir(folder)
    assert completed("^", "rewind", "--to") == ["^1", "^2"] and completed("^", "rewind", "s3://b/run", "--to") == []
