"""`show`, `diff` and `steps`: what they print, and what they do with a run that is active, damaged or hostile."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import satchel
from satchel.runtime.cli import output
from satchel.workspace import journal

from .conftest import PLAIN, Cli, Make, contents, data_of
from .conftest import satchel as command

STATEFUL = PLAIN.replace('await run.output(f"{item.id}.txt", ', "run.state[item.text] = (")


@pytest.fixture
def folder(make: Make) -> Path:
    folder = make(STATEFUL)
    satchel.open(folder).run()
    return folder


def test_the_run_is_not_shown_as_it_was(folder: Path, cli: Cli) -> None:
    before = contents(folder)
    said = cli("show", folder, "^2").stdout
    assert "- [x] say a ^1" in said and "- [ ] say b" in said and '"say a": "SAY A"' in said and 'say b"' not in said
    lines = said.splitlines()
    assert lines[0].endswith(": running") and "committed   ^1" in lines[2] and "begun       ^2  say b" in lines[3]
    found = data_of(cli("show", folder, "^2", "--json"))
    assert found["agents"][""]["data"] == {"say a": "SAY A"} and found["agents"][""]["open"] == []
    assert (found["before"]["seq"], found["record"]["type"], found["after"]["scope"]) == (
        found["seq"] - 1,
        "scope.committed",
        "2",
    )
    rows = {row.line.seq: row.record for row in satchel.open(folder).history.log()}
    assert found["record"] == rows[found["seq"]], "the record is not as the log has it"
    newest = data_of(cli("show", folder, "--json"))
    assert (newest["seq"], newest["after"], newest["status"]) == (newest["newest"], None, "completed")
    assert contents(folder) == before


def test_a_record_that_is_not_there_is_no_error(folder: Path, cli: Cli) -> None:
    last = len(list(satchel.open(folder).history.log()))
    found = cli("show", folder, "999")
    assert found.exit_code == 2 and f"the newest is record {last}" in found.stderr
    assert cli("show", folder, "3-other").exit_code == cli("steps", folder, "9").exit_code == 2
    assert "no such folder" in cli("show", folder.parent / "no", "3").stderr
    assert cli("show", folder, "3", "4").exit_code == cli("diff", folder).exit_code == 2


def test_a_mistyped_folder_is_taken_for_a_record_of_the_current_one(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["steps", "dmeo"], ["show", "dmeo"], ["diff", "dmeo", "3"], ["blame", "dmeo", "state.json"]):
        assert "dmeo: no such folder" in cli(*words).stderr, words
    for words in (["steps", "^3"], ["show", "3"], ["diff", "3", "latest"], ["blame", "state.json"]):
        assert "the current folder is not a workspace" in cli(*words).stderr, words
    assert "is not a workspace" in cli("show", tmp_path, "3").stderr


def test_the_current_folder_is_not_the_workspace(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert cli("show", "^2").stdout == cli("show", folder, "^2").stdout
    assert cli("diff", "^1", "^2").stdout == cli("diff", folder, "^1", "^2").stdout
    assert cli("steps", "2").stdout == cli("steps", folder, "2").stdout


def test_two_moments_have_no_difference(folder: Path, cli: Cli) -> None:
    said = cli("diff", folder, "^2").stdout
    assert "state       running -> completed" in said and '+ /say b  "SAY B"' in said
    assert "+- [x] say b ^2" in said and '+ ^2  shout("text":"say b")  "SAY B"' in said
    assert "^1  shout" not in said
    found = data_of(cli("diff", folder, "^2", "--json"))
    assert [(each["kind"], each["path"], each["new"]) for each in found["data"]] == [("added", "/say b", "SAY B")]
    assert "old" not in found["data"][0] and [each["new"]["result"] for each in found["calls"]] == ["SAY B"]
    assert found["is_empty"] is False
    assert cli("diff", folder, "^2", "--exit-code").exit_code == 1
    same = cli("diff", folder, "latest", "latest", "--exit-code")
    assert same.exit_code == 0 and "no difference" in same.stdout


def test_two_runs_have_no_difference(folder: Path, make: Make, cli: Cli) -> None:
    other = make(STATEFUL.replace("text.upper()", "text.title()"), "other")
    satchel.open(other).run()
    said = cli("diff", folder, other).stdout
    assert '~ /say a  "SAY A" -> "Say A"' in said and '~ ^1  shout("text":"say a")  "SAY A" -> "Say A"' in said
    assert "todo.md" not in said and f"- {folder} at record" in said
    found = satchel.open(folder).history.diff(satchel.open(other))
    assert [each.kind for each in found.calls] == ["changed", "changed"] and not found.is_empty
    assert satchel.open(folder).history.diff(satchel.open(folder)).is_empty


def test_steps_of_an_item_are_not_told(folder: Path, cli: Cli) -> None:
    said = cli("steps", folder).stdout.splitlines()
    assert said[0].startswith("^1  say a  (committed, 1 call") and '-> "SAY A"' in said[1]
    for name in ("2", "^2", "2-say-b"):
        (work,) = data_of(cli("steps", folder, name, "--json"))["work"]
        assert [each["result"] for each in work["calls"]] == ["SAY B"]
    assert data_of(cli("steps", folder, "--at", "^2", "--json"))["work"][-1]["scope"] == "1"
    assert "'^9' has begun. Name an item that has begun, such as `^1`" in cli("steps", folder, "9").stderr


def test_an_item_that_has_not_begun_is_given_as_the_example(make: Make, cli: Cli) -> None:
    folder = make("from satchel import agent\n@agent\nasync def main(run):\n    pass\n")
    assert cli("run", folder).exit_code == 0
    assert "no item '^3' has begun. None has begun yet" in cli("steps", folder, "3").stderr
    said = cli("rewind", folder, "--to", "^3").stderr
    assert "None has begun yet; name a record by its number, a checkpoint, or `latest`" in said


def test_a_running_run_can_not_be_looked_back_at(
    make: Make, cli: Cli, started: Callable[[Path], subprocess.Popen[str]]
) -> None:
    from .conftest import SLOW

    folder = make(SLOW)
    started(folder)
    assert '"first"' in cli("steps", folder, "1").stdout
    assert "- [/] second SLOW ^2" in cli("show", folder).stdout
    assert cli("diff", folder, "^2").exit_code == 0


def test_damage_hides_what_can_be_read(folder: Path, cli: Cli) -> None:
    (first,) = journal.segments(satchel.open(folder).store)
    path = folder / journal.segment_path(first)
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*rows[:9], b"broken\n", *rows[10:]]))
    found = cli("show", folder, "9")
    assert found.exit_code == 0 and "of 9" in found.stdout and "line 10 is damaged" in found.stderr
    assert "line 10 is damaged" in cli("steps", folder).stderr and '-> "SAY A"' in cli("steps", folder).stdout
    assert cli("show", folder, "10").exit_code == 2


def test_text_of_the_run_controls_the_terminal(make: Make, cli: Cli) -> None:
    folder = make(STATEFUL.replace('"say a"', '"say \\x1b[31m\\u202e a"'))
    satchel.open(folder).run()
    for words in (("show",), ("steps",), ("diff", "^1")):
        for more in ((), ("--json",)):
            said = cli(words[0], folder, *words[1:], *more).stdout
            assert "\x1b" not in said and "\u202e" not in said and "say " in said


def test_a_line_is_wider_than_the_terminal(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from satchel.runtime.cli.commands import timeline

    monkeypatch.setattr(timeline, "columns", lambda stream: 40)
    assert output.columns is not timeline.columns
    for words in (("show",), ("steps",), ("diff", "^1")):
        assert max(map(len, cli(words[0], folder, *words[1:]).stdout.splitlines())) <= 40


def test_steps_count_after_a_return_to_before_them(folder: Path) -> None:
    handle = satchel.open(folder)
    done = handle.history.show().seq

    def states() -> list[tuple[str, str]]:
        return [(each.names[0], each.state) for each in handle.history.steps().work]

    handle.history.rewind(to="^2")
    assert states() == [("^1", "committed"), ("^2", "undone")]
    assert handle.history.diff("^2").data == [] and [each.kind for each in handle.history.diff(done).calls] == [
        "removed"
    ]
    handle.history.rewind(to=done)
    assert states() == [("^1", "committed"), ("^2", "committed")]
    assert not (found := handle.history.diff(done)).data and not found.calls
    handle.history.rewind(to="^2")
    handle.resume()
    assert states() == [("^1", "committed"), ("^2", "undone"), ("^2", "committed")]
    assert handle.history.diff(done).is_empty


def test_an_effect_is_undone_by_a_return(make: Make) -> None:
    source = STATEFUL.replace("import agent, step", "import agent, effect as step")
    handle = satchel.open(make(source))
    handle.run()
    done, early = handle.history.show().seq, handle.history.show("^2").seq
    handle.history.rewind(to="^1")
    assert not handle.history.diff(done).calls and handle.history.diff(done).data
    handle.resume()
    assert handle.history.diff(done).is_empty
    handle.history.rewind(to=early, forget=True)
    assert [(each.kind, each.scope) for each in handle.history.diff(done).calls] == [("removed", "2")]


def test_positions_and_items_are_not_completed(folder: Path) -> None:
    for words, expected in (
        (f"satchel show {folder} ", {"^1", "^2", "latest", "stop"}),
        (f"satchel diff {folder} ^1 l", {"latest"}),
        (f"satchel steps {folder} ^", {"^1", "^2"}),
        ("satchel show s3://no-such-place/run ", set()),
    ):
        shell = {"_SATCHEL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        said = command(env={**os.environ, **shell}).stdout.splitlines()
        names = {line.partition(",")[2] for line in said if line}
        assert {re.sub(r"^[0-9]{12}-", "", name) for name in names} - {"start"} == expected, said
