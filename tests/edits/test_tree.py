"""Sub-agents to any depth: what is given to one that has ended is reached, and said."""

from __future__ import annotations

import json

import pytest

from satchel.workspace.base.errors import InvalidFile

from .folder import Place, world

CAROL = "agents/bob/agents/carol/todo.md"


def test_a_grandchilds_unticked_item_is_never_reached(finished: Place) -> None:
    finished.edit(CAROL, ("[x] carol 2", "[ ] carol 2"))
    outcome = finished.run()
    assert outcome.status == "completed" and world.fresh() == ["read carol 2", "join CAROL 2"]
    said = "\n".join(remark.text for remark in outcome.report.remarks)
    assert "item 2 ('carol 2') will be done again: 2 steps again; send" in said
    assert "item 2 ('ask carol') will run again, because bob/carol was spawned in it" in said
    assert "item 3 ('ask bob') will run again, because bob was spawned in it" in said
    assert [(record.agent, record.by == "the runtime") for record in finished.edited] == [
        ("", True),
        ("bob", True),
        ("bob/carol", False),
    ]
    assert finished.moment.is_finished and finished.is_at_the_moment()
    assert finished.run().report.remarks and world.fresh() == []


def test_all_unticked_at_once_are_done_twice_or_not(finished: Place) -> None:
    finished.edit(CAROL, ("[x] carol 2", "[ ] carol 2"))
    finished.edit("agents/bob/todo.md", ("[x] ask carol", "[ ] ask carol"), ("[x] bob 1", "[ ] bob 1"))
    finished.edit("todo.md", ("[x] ask bob", "[ ] ask bob"))
    assert finished.run().status == "completed"
    assert world.fresh() == ["read bob 1", "join BOB 1", "read carol 2", "join CAROL 2"]


def test_a_new_item_of_a_grandchild_is_not_done(finished: Place) -> None:
    finished.edit(CAROL, ("- [x] carol 2 ^2", "- [x] carol 2 ^2\n- [ ] carol 3"))
    assert finished.run().status == "completed"
    assert world.fresh() == ["read carol 3", "join CAROL 3", "send CAROL 3!"]


@pytest.mark.parametrize("mark", ["-", "removed"])
def test_a_person_who_drops_the_item_above_is_overruled(finished: Place, mark: str) -> None:
    finished.edit(CAROL, ("[x] carol 2", "[ ] carol 2"))
    finished.edit("todo.md", ("- [x] ask bob ^3\n", "" if mark == "removed" else "- [-] ask bob ^3\n"))
    outcome = finished.run()
    assert outcome.status == "completed" and world.fresh() == []
    assert any("is not in the plan above" in remark.text for remark in outcome.report.remarks)
    assert "[x] ask bob" not in finished.text()


def test_a_grandchilds_doubt_is_settled_by_removing_its_item(place: Place) -> None:
    world.hangs = {"CAROL 1!"}
    assert place.run().status == "waiting"
    place.edit(CAROL, ("- [/] carol 1 ^1\n", ""))
    outcome = place.run()
    assert (outcome.status, [doubt.agent for doubt in outcome.doubts]) == ("waiting", ["bob/carol"])


def test_data_of_a_sub_agent_become_a_list(finished: Place) -> None:
    """Nothing knows its state type, and the schema of it may be missing."""
    (finished.folder / ".satchel/schemas/agents/bob/data.json").unlink()
    state = finished.folder / "agents/bob/state.json"
    found = json.loads(state.read_text())
    state.write_text(json.dumps(found | {"data": [1]}))
    with pytest.raises(InvalidFile, match="data"):
        finished.run()
    assert json.loads(state.read_text())["data"] == found["data"]


def test_a_stopped_grandchild_does_not_go_on_with_its_edits(place: Place) -> None:
    assert place.run("carol 1").status == "failed"
    world.fresh()
    place.edit(CAROL, ("- [ ] carol 2", "- [ ] carol 3\n- [-] carol 2"))
    place.edit("agents/bob/agents/carol/steps/1-carol-1/01-read.json", ("CAROL 1", "C1"))
    place.set_data(lambda data: data.update(n=50), "agents/bob/agents/carol/state.json")
    outcome = place.run()
    assert world.fresh()[0] == "join C1" and [doubt.why for doubt in outcome.doubts] == ["unclaimed"]
    assert place.moment.agents["bob/carol"].data["n"] == 50


def test_a_plan_written_for_a_sub_agent_without_one_is_lost(place: Place) -> None:
    from satchel import Run, agent

    from .folder import State, work

    @agent(state=State)
    async def child(run: Run[State]) -> int:
        if run.todo.items:
            await run.todo.each(work)
        return len(run.todo.items)

    @agent(state=State)
    async def root(run: Run[State]) -> int:
        return int(await run.spawn(child, "child"))

    place.agent = root
    assert place.run().result == 0
    place.put("agents/child/todo.md", "- [ ] a\n")
    assert place.run().result == 1 and "send A!" in world.calls and place.moment.is_finished
