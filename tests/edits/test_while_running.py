"""Edits of the files of a run that is going on: seen at once, told, and obeyed at the next safe point."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic
import pytest
from click.testing import CliRunner

from satchel import Item, Run, agent, step
from satchel.runtime.cli.group import group as cli
from satchel.workspace.base.errors import Conflicting, SatchelError
from satchel.workspace.views import guarded_files
from satchel.workspace.views.guarded_files import Waits

from .folder import Place
from .running import Gate, going

FIRST = "steps/1-one/01-note.json"


def make(gate: Gate, *items: str) -> Any:
    @step
    def note(what: str) -> str:
        gate.pass_through(what)
        return what

    async def work(run: Run[dict[str, Any]], item: Item) -> None:
        text = item.text
        first = await note(f"{text} 1")
        run.state[text] = [first, await note(f"{text} 2 after {first}")]

    @agent
    async def main(run: Run[dict[str, Any]]) -> Any:
        if not run.todo.items:
            await run.plan("Work", items)
        await run.todo.each(work)
        return dict(run.state)

    return main


def after(*texts: str) -> list[str]:
    """The steps of items that were done from the beginning to the end."""
    return [call for text in texts for call in (f"{text} 1", f"{text} 2 after {text} 1")]


# todo.md


def test_a_new_item_waits_for_the_next_start(place: Place) -> None:
    gate = Gate("two 1")
    with going(place, make(gate, "one", "two"), gate) as running:
        running.reach("two 1")
        place.edit("todo.md", ("- [/] two", "- [ ] between\n- [/] two"))
        running.until_told("todo.md was saved; the run reads it at the next safe point")
        assert not place.edited, "an item is at work"
        gate.open()
        outcome = running.end()
    assert outcome.status == "completed" and gate.calls == after("one", "two", "between")
    assert place.edited[0].says == ("the item 'between' is new",)
    assert "- [x] between ^3\n- [x] two ^2\n" in place.text() and place.is_at_the_moment()


def test_an_unticked_item_is_not_done_again(place: Place) -> None:
    gate = Gate("three 1")
    with going(place, make(gate, "one", "two", "three"), gate) as running:
        running.reach("three 1")
        place.edit("todo.md", ("[x] one", "[ ] one"))
        running.until_told("todo.md was saved")
        gate.open()
    assert gate.calls == after("one", "two", "three", "one")
    assert place.text().count("[x]") == 3 and place.edited[0].redone == ("1",)


def test_an_item_that_is_dropped_while_at_work_goes_on_to_its_end(place: Place) -> None:
    gate = Gate("two 1")
    with going(place, make(gate, "one", "two", "three"), gate) as running:
        running.reach("two 1")
        place.edit("todo.md", ("[/] two", "[-] two"))
        running.until_told("todo.md was saved")
        time.sleep(0.5)  # it is to hold still, and to be decided about, before the step ends
        gate.open()
        outcome = running.end()
    assert outcome.status == "completed" and outcome.result == {
        "one": ["one 1", "one 2 after one 1"],
        "three": ["three 1", "three 2 after three 1"],
    }
    assert gate.calls == [*after("one"), "two 1", *after("three")], "its step ends, and no other begins"
    assert "- [-] two ^2" in place.text() and place.is_at_the_moment()


def test_the_item_at_work_is_lost_when_another_is_ticked_moved_or_reworded(place: Place) -> None:
    gate = Gate("one 1")
    with going(place, make(gate, "one", "two", "three", "four"), gate) as running:
        running.reach("one 1")
        place.edit("todo.md", ("- [ ] two\n- [ ] three\n- [ ] four", "- [ ] four\n- [x] three\n- [ ] deux"))
        running.until_told("todo.md was saved")
        gate.open()
    assert gate.calls == after("one", "four", "deux"), "nothing of the first is done again"
    assert "- [x] one ^1\n- [x] four ^2\n- [x] three\n- [x] deux" in place.text()


def test_a_byte_of_prose_is_lost(place: Place) -> None:
    prose = "Words\twith  odd spaces. \n\n| a | b |\n| - | - |\n\n\u201cquoted\u201d \\*\n"
    gate = Gate("two 1")
    with going(place, make(gate, "one", "two"), gate) as running:
        running.reach("two 1")
        place.edit("todo.md", ("# Work\n", f"# Work\n\n{prose}"))
        running.until_told("todo.md was saved")
        gate.open()
        running.until_taken()
    assert f"# Work\n\n{prose}\n- [x] one ^1\n- [x] two ^2\n" in place.text()


def test_a_person_at_a_plan_that_rests_waits_for_the_agent(place: Place) -> None:
    """No scope is open, and the agent waits for something else: then it is taken at once."""

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["one"])
        gate_step = step(gate.pass_through, name="wait")
        await gate_step("wait")

    gate = Gate("wait")
    with going(place, main, gate) as running:
        gate.reach("wait")
        running.until(lambda: "satchel" in running.text(), "the plan")
        place.edit("todo.md", ("- [ ] one", "- [ ] one\n- [ ] two"))
        running.until_taken()
        running.until(lambda: place.text().endswith("-->\n") and "two" in place.text(), "the stamp")
        gate.open()


def test_the_plan_of_a_sub_agent_is_left_alone(place: Place) -> None:
    gate = Gate("two 1")
    child = make(gate, "one", "two")

    async def ask(run: Run[Any], item: Item) -> None:
        run.state["said"] = await run.spawn(child, "helper")

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["ask"])
        await run.todo.each(ask)

    with going(place, main, gate) as running:
        running.reach("two 1")
        running.until(lambda: '"one"' in running.text("agents/helper/state.json"), "its state")
        place.edit("agents/helper/todo.md", ("- [/] two ^2", "- [/] two ^2\n- [ ] three"))
        place.set_data(lambda data: data | {"mine": 1}, "agents/helper/state.json")
        running.until_told("agents/helper/todo.md was saved")
        running.until_told("agents/helper/state.json was saved")
        time.sleep(0.5)  # both are to be seen before the step ends
        gate.open()
        outcome = running.end()
    assert outcome.status == "completed" and gate.calls == after("one", "two", "three")
    data = json.loads(place.get("agents/helper/state.json"))["data"]
    assert data["mine"] == 1 and data.keys() == {"one", "two", "three", "mine"} and place.is_at_the_moment()


class Bounded(pydantic.BaseModel):
    """What the schema does not say: a rule of its own, and the form of a date."""

    model_config = pydantic.ConfigDict(extra="allow")

    low: int = 0
    day: datetime.date = datetime.date(2026, 1, 1)

    @pydantic.field_validator("low")
    @classmethod
    def is_low(cls, value: int) -> int:
        if value > 9:
            raise ValueError("low is too high")
        return value


@pytest.mark.parametrize("edit", [{"low": 10}, {"day": "tomorrow"}])
def test_data_that_a_running_sub_agents_type_refuses_are_taken(place: Place, edit: dict[str, Any]) -> None:
    """The sub-agent could never be entered again."""
    gate = Gate("two 1")

    @step
    def note(what: str) -> str:
        gate.pass_through(what)
        return what

    async def work(run: Run[Bounded], item: Item) -> None:
        await note(f"{item.text} 1")
        run.state.low += 1

    @agent(state=Bounded)
    async def child(run: Run[Bounded]) -> int:
        if not run.todo.items:
            await run.plan(None, ["one", "two"])
        await run.todo.each(work)
        return run.state.low

    @agent
    async def main(run: Run[Any]) -> int:
        return await run.spawn(child, "helper")

    with going(place, main, gate) as running:
        running.reach("two 1")
        running.until(lambda: '"low": 1' in running.text("agents/helper/state.json"), "its state")
        place.set_data(lambda data: data | edit, "agents/helper/state.json")
        running.until_told("refused: agents/helper/state.json")
        gate.open()
        outcome = running.end()
    assert outcome.result == 2 and not place.edited, outcome.error
    assert "does not accept this" in place.text("agents/helper/state.rejected.txt")


# The other files


def test_data_that_a_person_adds_are_overwritten_by_the_commit(place: Place) -> None:
    gate = Gate("two 1")
    with going(place, make(gate, "one", "two"), gate) as running:
        running.reach("two 1")
        place.set_data(lambda data: data | {"mine": {"a": 1}})
        running.until_told("state.json was saved")
        gate.open()
        outcome = running.end()
    assert outcome.result["mine"] == {"a": 1} and outcome.result.keys() == {"one", "two", "mine"}
    assert place.edited[0].says == ("data.mine is now a mapping of 1 key",)


def test_another_result_of_a_finished_step_is_not_used(place: Place) -> None:
    gate = Gate("one 2 after one 1")
    with going(place, make(gate, "one"), gate) as running:
        running.reach("one 2 after one 1")
        running.until(lambda: place.there(FIRST), "the step's file")
        place.edit(FIRST, ('"result": "one 1"', '"result": "uno"'))
        running.until_told(f"{FIRST} was saved")
        time.sleep(0.5)
        gate.open()
        outcome = running.end()
    assert outcome.result == {"one": ["uno", "one 2 after uno"]}, (gate.calls, running.told.lines)
    assert gate.calls == ["one 1", "one 2 after one 1", "one 2 after uno"]


def test_a_step_that_is_to_be_redone_is_not(place: Place) -> None:
    gate = Gate("one 2 after one 1")
    with going(place, make(gate, "one"), gate) as running:
        running.reach("one 2 after one 1")
        running.until(lambda: place.there(FIRST), "the step's file")
        place.edit(FIRST, ('"result": "one 1"', '"result": "one 1", "redo": true'))
        running.until_told(f"{FIRST} was saved")
        time.sleep(0.5)
        gate.open()
    assert gate.calls == ["one 1", "one 2 after one 1", "one 1"], "what depends on it has the same arguments"


def test_a_new_setting_is_not_seen_at_once(place: Place) -> None:
    seen: list[Any] = []
    gate = Gate("wait")

    @agent
    async def main(run: Run[Any]) -> None:
        seen.append(run.settings.get("depth"))
        await step(gate.pass_through, name="wait")("wait")
        seen.append(run.settings.get("depth"))

    place.put("workspace.yaml", place.text("workspace.yaml") + "settings: {depth: 1}\n")
    with going(place, main, gate) as running:
        gate.reach("wait")
        place.edit("workspace.yaml", ("depth: 1", "depth: 2"))
        assert running.until_taken("workspace.yaml").says == ("settings.depth is now 2",)
        gate.open()
    assert seen == [1, 2]


def test_a_budget_that_is_lowered_does_not_count(place: Place) -> None:
    gate = Gate("one 1")
    with going(place, make(gate, "one", "two"), gate) as running:
        running.reach("one 1")
        place.put("workspace.yaml", place.text("workspace.yaml") + "budget: {steps: 1}\n")
        running.until_taken("workspace.yaml")
        gate.open()
        outcome = running.end()
    assert outcome.status == "paused" and gate.calls == ["one 1"], running.told.lines


@pytest.mark.parametrize("text", ["format: 1\nrun_id: [", "format: 1\nrun_id: run-1\n", ""])
def test_a_broken_definition_stops_the_run_or_is_not_told_of(place: Place, text: str) -> None:
    gate = Gate("one 1")
    before = place.text("workspace.yaml")
    with going(place, make(gate, "one"), gate) as running:
        running.reach("one 1")
        place.put("workspace.yaml", text)
        running.until_told("the run continues with the last valid version")
        gate.open()
        assert running.end().status == "completed"
    assert place.text("workspace.yaml") == text, "a person's file"
    place.put("workspace.yaml", before)
    assert place.run().status == "completed"


# Refused, missing, contradicting


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("state.json", lambda place: place.put("state.json", '{"data": {')),
        ("todo.md", lambda place: place.put("todo.md", place.text().replace("- [ ] two", "- [?] two ^1"))),
        ("state.json", lambda place: place.edit("state.json", ('"status": "running"', '"status": "completed"'))),
    ],
    ids=["half", "an id twice", "not theirs to change"],
)
def test_what_is_refused_is_lost_or_stops_the_run(place: Place, path: str, change: Callable[[Place], None]) -> None:
    gate = Gate("one 1", "two 1")
    with going(place, make(gate, "one", "two"), gate) as running:
        running.reach("one 1")
        change(place)
        mine = place.get(path)
        running.until_told("refused: ")
        gate.open("one 1")
        running.reach("two 1")
        gate.open()
        assert running.end().status == "completed"
    stem, _, extension = path.rpartition(".")
    assert place.get(f"{stem}.rejected.{extension}") == mine
    assert place.text(f"{stem}.rejected.txt").startswith(f"{path} was not accepted")
    assert place.is_at_the_moment() and not place.edited


@pytest.mark.parametrize("path", ["todo.md", "state.json"])
def test_an_edit_that_no_record_can_hold_ends_the_run(place: Place, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.workspace.inbound.findings.EDIT_BYTES", 2_000)
    monkeypatch.setattr("satchel.workspace.inbound.findings._LARGE", 2_000)
    gate = Gate("one 1")
    with going(place, make(gate, "one", "two"), gate) as running:
        running.reach("one 1")
        if path == "todo.md":
            place.put(path, place.text() + f"- [ ] {'x' * 3_000}\n")
        else:
            place.set_data(lambda data: data.update(notes={"a": "x" * 3_000}))
        running.until_told("too much: the change has 3,")
        gate.open()
        assert running.end().status == "completed"
    assert "x" * 3_000 in place.text(path.replace(".", ".rejected.")) and not place.edited


@pytest.mark.parametrize("path", ["todo.md", "state.json"])
def test_a_file_that_is_removed_stays_away(place: Place, path: str) -> None:
    gate = Gate("two 1")
    with going(place, make(gate, "one", "two"), gate) as running:
        running.reach("two 1")
        (place.folder / path).unlink()
        running.until(lambda: place.there(path), "it is restored")
        gate.open()
    assert gate.calls == after("one", "two") and place.is_at_the_moment()


def test_a_file_that_was_saved_and_then_removed_stays_away(place: Place) -> None:
    gate = Gate("two 1")
    with going(place, make(gate, "one", "two"), gate) as running:
        running.reach("two 1")
        place.put("todo.md", place.text() + "- [ ] three\n")
        running.until(lambda: running.told.lines or _looked(), "it has been seen")
        (place.folder / "todo.md").unlink()
        running.until(lambda: place.there("todo.md"), "it is restored")
        gate.open()
    assert place.is_at_the_moment()


def _looked(seconds: float = 0.2) -> bool:
    time.sleep(seconds)
    return True


def test_a_save_at_the_place_of_a_removed_file_is_never_seen(place: Place) -> None:
    """As vim saves: the old file gets another name, and a new one is made."""
    gate = Gate("two 1")
    with going(place, make(gate, "one", "two"), gate) as running:
        running.reach("two 1")
        for number in range(12):
            text = place.text().replace("- [/] two", f"- [ ] extra {number}\n- [/] two")
            os.rename(place.folder / "todo.md", place.folder / "todo.md~")
            time.sleep(0.01 * number)  # at times it is restored before, at times after the new one is there
            place.put("todo.md", text)
            time.sleep(0.02)
        running.until_told("todo.md was saved")
        time.sleep(0.5)
        gate.open()
        assert running.end().status == "completed"
    for number in range(12):
        assert place.text().count(f"- [x] extra {number} ^") == 1, place.text()


def test_a_contradiction_is_settled_by_the_run_itself(place: Place) -> None:
    gate = Gate("one 1", "two 1")
    with going(place, make(gate, "one", "two"), gate) as running:
        running.reach("one 1")
        theirs = json.loads(place.get("state.json"))
        theirs["data"] = {"one": "what a person says"}
        gate.open("one 1")
        running.reach("two 1")  # by now the run has said something else
        place.put("state.json", json.dumps(theirs, indent=2))
        running.until_told("state.json was saved")
        gate.open()
        outcome = running.end()
    assert outcome.status == "paused", (outcome, running.told.lines)
    assert "conflict: state.json conflicts with the run" in place.text("pause.yaml")
    assert place.there("conflicts/*") == [
        f"conflicts/state.{name}" for name in ("base.json", "ours.json", "theirs.json", "txt")
    ]
    assert json.loads(place.get("state.json")) == theirs, "it is left as it is"
    with pytest.raises(Conflicting):
        place.recover()
    merged = CliRunner().invoke(cli, ["merge", str(place.folder), "--use", "theirs"])
    assert merged.exit_code == 0, merged.output
    resumed = CliRunner().invoke(cli, ["resume", "--in-process", str(place.folder)])
    assert "agent.py" in resumed.output, "it is gone on with, and there is no such agent in this folder"


# Said


def test_status_does_not_tell_of_a_save_that_waits(place: Place) -> None:
    gate = Gate("one 1")
    with going(place, make(gate, "one", "two"), gate) as running:
        running.reach("one 1")
        place.edit("todo.md", ("- [ ] two", "- [ ] two\n- [ ] three"))
        told = CliRunner().invoke(cli, ["status", str(place.folder)])
        assert "todo.md was saved; the run reads it at the next safe point" in told.output, told.output
        gate.open()
    assert "todo.md was saved" not in CliRunner().invoke(cli, ["status", str(place.folder)]).output
    log = CliRunner().invoke(cli, ["log", str(place.folder)]).output
    assert "the item 'three' is new" in log, log


# Something else in the place of a file


@pytest.mark.parametrize("kind", ["folder", "fifo", "link"])
def test_what_is_no_file_stops_or_hangs_the_run(place: Place, kind: str) -> None:
    gate = Gate("one 1")
    path: Path = place.folder / "todo.md"
    with going(place, make(gate, "one", "two"), gate) as running:
        running.reach("one 1")
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            path.symlink_to("/etc/passwd")
        running.until_told("refused: todo.md")
        gate.open()
        assert running.end().status == "completed", "the run needs nothing of it"
    assert gate.calls == after("one", "two")
    with pytest.raises(SatchelError, match=r"todo\.md"):
        place.recover()
    path.rmdir() if kind == "folder" else path.unlink()
    place.recover()
    assert "[x] two" in place.text()


def test_a_file_that_never_holds_still_keeps_the_run_from_going_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded_files, "WAITS", Waits())
    gate = Gate("one 1")
    with going(place, make(gate, "one", "two", "three"), gate) as running:
        running.reach("one 1")
        text = place.text()
        gate.open()
        for number in range(200):
            if running.outcome:
                break
            place.put("todo.md", f"{text}\n{number}\n")
            time.sleep(0.01)
        assert running.end().status == "completed"
    assert gate.calls == after("one", "two", "three")
