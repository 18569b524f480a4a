"""A conflict in a running run pauses it, whenever it is found, and the run hears what comes after."""

from __future__ import annotations

import json
from typing import Any

import pytest

import satchel
from satchel import Run, agent, step
from satchel.runtime.api import repair
from satchel.runtime.engine.context import Context
from satchel.runtime.execution import execute
from satchel.runtime.execution.live_edits import LiveEdits
from satchel.runtime.execution.running import Outcome
from satchel.runtime.execution.start import Start
from satchel.runtime.status import run_status
from satchel.workspace.base.errors import Conflicting
from satchel.workspace.inbound import CheckData
from satchel.workspace.inspect.load import look

from .folder import Place
from .running import Gate, going
from .test_while_running import after, make


@pytest.fixture
def attentions(monkeypatch: pytest.MonkeyPatch) -> list[LiveEdits]:
    """Of the runs of this test."""
    found: list[LiveEdits] = []
    started = execute.started

    def noted(context: Context, check_data: CheckData, start: Start) -> Any:
        attention, task = started(context, check_data, start)
        found.append(attention)
        return attention, task

    monkeypatch.setattr(execute, "started", noted)
    return found


def lacks_an_item(place: Place) -> None:
    """A plan without its stamp that lacks `three`, and has something of its own."""
    text = place.without_stamp("todo.md").decode()
    place.put("todo.md", text.replace("- [ ] three\n", "- [ ] mine\n"))


def check_is_paused(place: Place, outcome: Outcome, path: str = "todo.md") -> None:
    assert outcome.status == "paused" and place.moment.status == "paused"
    assert place.text("pause.yaml").count(f"conflict: {path} conflicts with the run") == 1
    stem, _, extension = path.rpartition(".")
    assert place.get(path) == place.get(f"conflicts/{stem}.theirs.{extension}"), "left as it is, and kept"
    with pytest.raises(Conflicting):
        place.recover()


def test_a_conflict_that_stops_an_item_lets_the_run_go_on_and_makes_it_deaf(
    place: Place, attentions: list[LiveEdits]
) -> None:
    gate = Gate("two 1")
    with going(place, make(gate, "one", "two", "three"), gate) as running:
        running.reach("two 1")
        lacks_an_item(place)
        running.until_told("todo.md was saved")
        running.until(lambda: attentions[0]._context.stopping.suspension, "the item is told to stop for it")
        gate.open()
        outcome = running.end()
    assert gate.calls == [*after("one"), "two 1"], "its step ends, and no other begins"
    check_is_paused(place, outcome)


def test_a_conflict_that_is_found_at_the_end_is_forgotten_for_another_edit(place: Place) -> None:
    """The plan gives the run something to do, and state.json contradicts it."""
    gate = Gate("wait")
    body = make(gate, "one")

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        await body.function(run)
        await step(gate.pass_through, name="wait")("wait")

    with going(place, main, gate) as running:
        gate.reach("wait")
        running.until(lambda: "[x] one" in running.text() and '"one 1"' in place.text("state.json"), "the files")
        place.edit("todo.md", ("- [x] one ^1\n", "- [x] one ^1\n- [ ] two\n"))
        place.put("state.json", json.dumps({"data": {"one": "what a person says"}}))  # without a stamp
        gate.open()
        outcome = running.end()
    assert gate.calls == [*after("one"), "wait"], "nothing is begun after it"
    check_is_paused(place, outcome, "state.json")
    assert "- [ ] two" in place.text() and place.edited[0].says == ("the item 'two' is new",)


def test_status_resume_goes_on_over_a_conflict(place: Place) -> None:
    """Typed before the run has come to rest."""
    gate = Gate("wait")
    body = make(gate, "one", "two", "three")

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan("Work", ["one", "two", "three"])
        await step(gate.pass_through, name="wait")("wait")
        await body.function(run)

    with going(place, main, gate) as running:
        gate.reach("wait")
        running.until(lambda: "satchel" in running.text(), "the plan")
        lacks_an_item(place)
        running.until(lambda: "status: draining" in running.text("pause.yaml"), "pause.yaml")
        place.edit("pause.yaml", ("status: draining", "status: resume"))
        gate.open()
        outcome = running.end()
    assert gate.calls == ["wait"]
    check_is_paused(place, outcome)
    assert "status: resume" in place.text("pause.yaml"), "a person's word is kept"


def test_status_takes_the_files_of_a_run_that_is_stopping_for_those_of_a_copy(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go on after the journal was looked at."""
    gate = Gate("one 1", "two 1")
    with going(place, make(gate, "one", "two"), gate) as running:
        running.reach("one 1")
        earlier = look(place.store)
        gate.open("one 1")
        running.reach("two 1")
        place.put("pause.yaml", "")
        running.until_told("stopping: ")
        monkeypatch.setattr(run_status, "glance", lambda *_, **__: earlier)
        found = run_status.stand(place.store, with_edits=True)
        seen = iter([earlier])
        monkeypatch.setattr(repair, "look", lambda store: next(seen, None) or look(store))
        noticed = satchel.open(place.folder).merge()
        gate.open()
    assert found.state == "draining" and found.noticed is None
    assert next(seen, None) is None and not noticed.refused
