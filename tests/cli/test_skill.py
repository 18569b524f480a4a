"""The Agent Skill is valid, and every command that it names does what it says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from satchel.runtime.cli.group import COMMANDS

from .conftest import Cli, Make

LETTERS = """
from satchel import agent, effect, step

@step
async def draft(to: str) -> str:
    return f"Dear {to}"

@effect
async def mail(text: str) -> str:
    return "sent"

async def work(run, item):
    text = await draft(item.text)
    run.state[item.text] = text
    if await run.ask(f"Send the letter to {item.text}?", choices=["yes", "no"], wait_for=0) == "yes":
        await mail(text)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Letters", ["Ada", "Grace"])
    await run.todo.each(work)
"""


@pytest.fixture
def skill(cli: Cli) -> str:
    result = cli("skill")
    assert result.exit_code == 0
    return result.stdout


def commands(skill: str) -> list[str]:
    """Those in blocks, without their comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", skill, re.MULTILINE | re.DOTALL)
    return [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]


def test_the_skill_is_not_valid(skill: str, tmp_path: Path) -> None:
    skills_ref = pytest.importorskip("skills_ref.validator")
    (tmp_path / "satchel").mkdir()
    (tmp_path / "satchel" / "SKILL.md").write_text(skill)
    assert skills_ref.validate(tmp_path / "satchel") == []
    (tmp_path / "satchel").rename(tmp_path / "other")
    assert skills_ref.validate(tmp_path / "other"), "the validator finds something wrong"


def test_the_skill_names_what_there_is_not(skill: str, cli: Cli) -> None:
    named = {*re.findall(r"satchel ([a-z]+)\b(?! keeps)", skill)} - {"runs"}
    assert named <= {*COMMANDS}, named - {*COMMANDS}
    assert len(named) > 15
    options = {*re.findall(r"--[a-z][a-z-]+", skill)}
    helps = "".join(cli(name, "--help").stdout for name in sorted(named))
    assert len(options) > 10
    assert not [option for option in options if not re.search(rf"{option}\b", helps)]


def test_a_command_of_the_skill_fails(skill: str, make: Make, cli: Cli, tmp_path: Path) -> None:
    """Played from top to bottom on a run that waits, as a coding agent would type them."""
    folder = make(LETTERS)
    assert cli("run", "--in-process", "--quiet", folder).exit_code == 4
    filled = {"WS": str(folder), "ROOT": str(folder.parent), "DST": str(tmp_path / "second"), "SEQ": "5", "ITEM": "1"}
    filled |= {"ID": "a1", "DECISION": "yes"}
    played: dict[str, str] = {}
    for line in commands(skill):
        words = [filled.get(word, word) for word in shlex.split(line)[1:]]
        if words[0] in ("run", "resume"):
            words.append("--in-process")
        result = cli(*words)
        expected = 4 if words[0] in ("run", "resume") else 0
        assert result.exit_code == expected, (line, result.output)
        played[" ".join(line.split()[1:3])] = result.stdout
    assert {line.split()[1] for line in commands(skill)} == {
        "ls",
        "status",
        "log",
        "steps",
        "show",
        "blame",
        "diff",
        "check",
        "answer",
        "pause",
        "send",
        "rewind",
        "redo",
        "fork",
        "resume",
        "run",
    }
    status = json.loads(played["status WS"])
    assert status["state"] == "waiting" and status["questions"][0]["id"] == "a1" and "answer" in status["next"]
    assert {"items", "error"} <= status.keys()
    assert (tmp_path / "second" / "workspace.yaml").is_file()


def test_an_edit_that_the_skill_describes_is_refused(make: Make, cli: Cli) -> None:
    folder = make(LETTERS)
    assert cli("run", "--in-process", "--quiet", folder).exit_code == 4
    plan = folder / "todo.md"
    plan.write_text(plan.read_text().replace("- [ ] Grace", "- [-] Grace\n- [ ] Edsger"))
    state = folder / "state.json"
    state.write_text(state.read_text().replace('"data": {}', '"data": {"tone": "warm"}'))
    (result,) = (folder / "steps").rglob("*.json")
    result.write_text(result.read_text().replace("Dear Ada", "Dear Countess"))
    checked = cli("check", folder)
    assert checked.exit_code == 0 and "todo.md" in checked.stdout and "state.json" in checked.stdout
    assert cli("answer", folder, "a1", "no").exit_code == 0
    assert cli("resume", "--in-process", "--quiet", folder).exit_code == 4
    data = json.loads(state.read_text())["data"]
    assert data == {"tone": "warm", "Ada": "Dear Countess"}
    assert "- [/] Edsger" in plan.read_text() and not [*folder.rglob("*.rejected.*")]
