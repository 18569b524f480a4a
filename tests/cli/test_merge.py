"""`merge`: shows what a file conflicts with the run in, and settles it each way."""

from __future__ import annotations

from pathlib import Path

import pytest

import satchel

from .conftest import Cli, Make, contents, data_of

COUNTING = """
from pathlib import Path
from satchel import agent, step

Path(__file__).with_name("imported").write_text("")

@step
def shout(text: str) -> str:
    return text.upper()

async def work(run, item):
    run.state["said"] = [*run.state.get("said", ["nothing"]), await shout(item.text)]
    run.state["n"] = run.state.get("n", 0) + 1
    if item.text == "say b" and not Path(__file__).with_name("on").exists():
        raise TypeError("stop")

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Demo", ["say a", "say b", "say c"])
    await run.todo.each(work)
"""


@pytest.fixture
def torn(make: Make, cli: Cli) -> Path:
    """Stopped, copied, gone on with, and the edited copies put back: both files contradict the run."""
    folder = make(COUNTING)
    assert cli("run", folder).exit_code == 1
    old = {name: (folder / name).read_text() for name in ("todo.md", "state.json")}
    (folder / "on").touch()
    assert cli("run", folder).exit_code == 0
    (folder / "todo.md").write_text(old["todo.md"].replace("[ ] say c", "[-] say c"))
    (folder / "state.json").write_text(old["state.json"].replace('"n": 1', '"n": 9'))
    (folder / "imported").unlink()
    return folder


def test_a_run_over_a_contradiction_goes_on(torn: Path, cli: Cli) -> None:
    result = cli("resume", torn)
    assert result.exit_code == 4 and "satchel merge" in result.stderr
    assert "the file conflicts with the run, as do other files" in result.stderr
    assert sorted(path.name for path in (torn / "conflicts").iterdir()) == sorted(
        f"{stem}.{name}"
        for stem, extension in (("todo", "md"), ("state", "json"))
        for name in (f"base.{extension}", f"ours.{extension}", f"theirs.{extension}", "txt")
    )


def test_an_answer_is_wanted_that_no_process_takes_before_the_merge(make: Make, cli: Cli) -> None:
    source = """
from satchel import agent
async def work(run, item):
    run.state[item.text] = (await run.ask("May I?", ["yes", "no"], wait_for=0)).decision
@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["a", "b"])
    await run.todo.each(work)
"""
    folder = make(source)
    assert cli("run", folder).exit_code == 4
    old = (folder / "state.json").read_text()
    cli("answer", folder, "a1", "yes")
    assert cli("run", folder).exit_code == 4
    (folder / "state.json").write_text(old.replace('"data": {}', '"data": {"a": "maybe"}'))
    assert cli("answer", folder, "a2", "yes").exit_code == 4
    assert cli("run", folder).exit_code == 4
    assert cli("ls", folder.parent).stdout.rstrip().endswith(" merge")


def test_what_is_to_be_typed_next_does_not_settle_it(torn: Path, cli: Cli) -> None:
    """Before it is asked, while it is asked, and once it is settled."""
    assert data_of(cli("status", torn, "--json"))["next"] == f"satchel merge {torn}"
    assert cli("resume", torn).exit_code == 4
    assert data_of(cli("status", torn, "--json"))["next"] == f"satchel merge {torn}"
    assert cli("ls", torn.parent).stdout.rstrip().endswith(" merge")
    assert cli("merge", torn, "--use", "theirs").exit_code == 0
    assert "merge" not in cli("status", torn).stdout.splitlines()[-1]
    assert not cli("ls", torn.parent).stdout.rstrip().endswith(" merge")


def test_showing_changes_something_or_runs_code(torn: Path, cli: Cli) -> None:
    before = contents(torn)
    result = cli("merge", torn)
    assert result.exit_code == 4
    for said in (
        "conflict todo.md",
        "conflict state.json",
        "data.n",
        "the file  - [-] say c",
        "2 files with conflicts",
    ):
        assert said in result.stdout, result.stdout
    told = data_of(cli("merge", "--json", torn))
    assert [each["path"] for each in told["conflicts"]] == ["state.json", "todo.md"] and not told["refused"]
    assert contents(torn) == before and not (torn / "imported").exists()


def test_a_choice_does_not_say_what_it_does(torn: Path, cli: Cli) -> None:
    """In numbers, the same in text, in JSON and from Python; and it does that."""
    (torn / "todo.md").write_text((torn / "todo.md").read_text().replace("- [", "- [ ] say d\n- [", 1))
    told = cli("merge", torn).stdout
    for said in (
        "--use theirs  1 value of the run is replaced by yours",
        "--use ours    1 change of yours is not taken",
        "--use edited  1 value of the run is replaced by yours, 2 values of the run are removed",
        "--use theirs  1 item of yours is added, 1 item is dropped",
        "--use ours    1 item of yours is added, 1 change of yours is not taken",
        "1 item of yours is added, 1 item is done again, 1 item is dropped, 1 result of the run is dropped",
    ):
        assert said in told, told
    state, plan = data_of(cli("merge", torn, "--json"))["conflicts"]
    assert [(each["base"], each["ours"], each["theirs"]) for each in state["places"]] == [("1", "3", "9")]
    assert [each["theirs"] for each in plan["places"]] == ["- [-] say c"]
    choices = {each["use"]: each["counts"] for each in plan["choices"]}
    assert choices["edited"] == {"added": 1, "again": 1, "dropped": 1, "results": 1} and choices["ours"]["left"] == 1
    found = satchel.open(torn).merge().conflicts[1]
    assert {each.use: each.counts for each in found.choices} == choices
    assert cli("merge", torn, "--use", "theirs", "--file", "todo.md").exit_code == 4
    lines = (torn / "todo.md").read_text().splitlines()
    assert "- [-] say c ^3" in lines and any(line.startswith("- [ ] say d") for line in lines)


@pytest.mark.parametrize(("side", "n", "mark"), [("ours", 3, "x"), ("theirs", 9, "-"), ("edited", 9, "-")])
def test_a_side_is_not_taken(torn: Path, cli: Cli, side: str, n: int, mark: str) -> None:
    result = cli("merge", torn, "--use", side)
    assert result.exit_code == 0, result.output
    assert f'"n": {n}' in (torn / "state.json").read_text() and f"[{mark}] say c" in (torn / "todo.md").read_text()
    assert not (torn / "conflicts").exists() and not (torn / "imported").exists()
    rejected = sorted(path.name for path in torn.glob("*.rejected.*"))
    assert rejected == (
        ["state.rejected.json", "state.rejected.txt", "todo.rejected.md", "todo.rejected.txt"] if side == "ours" else []
    )
    assert cli("check", torn).exit_code == 0


def test_one_file_can_not_be_settled_alone(torn: Path, cli: Cli) -> None:
    mine = (torn / "todo.md").read_bytes()
    result = cli("merge", torn, "--use", "theirs", "--file", "state.json")
    assert result.exit_code == 4 and "conflict todo.md" in result.stdout
    assert '"n": 9' in (torn / "state.json").read_text() and (torn / "todo.md").read_bytes() == mine
    told = data_of(cli("merge", torn, "--use", "ours", "--file", "todo.md", "--json"))
    assert (told["settled"], told["use"], told["open"]) == (["todo.md"], "ours", [])
    assert "nothing to merge" in cli("merge", torn).stdout


def test_a_file_that_nothing_is_asked_about_is_taken(torn: Path, cli: Cli) -> None:
    result = cli("merge", torn, "--use", "ours", "--file", "agent.py")
    assert result.exit_code == 2 and "Conflicts: state.json, todo.md" in result.stderr


def test_nothing_to_merge_is_a_fault(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    for words in ((), ("--use", "ours")):
        result = cli("merge", folder, *words)
        assert (result.exit_code, result.stdout) == (0, "nothing to merge: the files and the run agree\n")


def test_a_refused_file_is_overlooked(torn: Path, cli: Cli) -> None:
    (torn / "state.json").write_text("{")
    result = cli("merge", torn)
    assert result.exit_code == 2 and "refused  state.json" in result.stdout
    assert cli("merge", torn, "--use", "theirs").exit_code == 2
    assert (torn / "state.rejected.json").read_text() == "{"
    assert cli("merge", torn, "--use", "theirs").exit_code == 0
