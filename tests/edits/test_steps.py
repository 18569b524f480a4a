"""steps/ of an item that was begun: another result, or `redo`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest

from satchel import Run, agent
from satchel.workspace import journal
from satchel.workspace.base.errors import Refused

from .folder import Place, State, join, read, world

READ, JOIN, SEND = (f"steps/2-two/{name}.json" for name in ("01-read", "02-join", "03-send"))


def test_an_edited_result_is_not_used_or_what_depends_on_it_not_redone(stopped: Place) -> None:
    stopped.edit(READ, ('"result": "TWO"', '"result": "ZWEI"'))
    outcome = stopped.run()
    assert world.fresh() == ["join ZWEI"]
    assert any("'two' now counts as having returned \"ZWEI\"" in remark.text for remark in outcome.report.remarks)
    assert [doubt.why for doubt in outcome.doubts] == ["unclaimed"], "the mail would be another one"
    assert stopped.edited[0].step is not None and stopped.edited[0].file == READ


def test_a_step_with_redo_is_not_done_again(stopped: Place) -> None:
    stopped.edit(READ, ('"result": "TWO"', '"result": "TWO", "redo": true'))
    stopped.run()
    assert world.fresh()[:2] == ["read two", "read bob 1"], "it comes to the same, so the rest is kept"


def test_an_effect_done_once_more_has_the_same_key(stopped: Place) -> None:
    keys = [world.keys[1]]
    for _ in range(2):
        stopped.edit(SEND, ('"call"', '"redo": true, "call"'))
        outcome = stopped.run("two")
        assert world.fresh() == ["send TWO!"]
        assert "although it is an effect" in str(outcome.report.remarks)
        keys.append(world.keys[-1])
    assert len(set(keys)) == 3


def test_the_key_of_an_effect_done_once_more_changes_at_a_retry(stopped: Place) -> None:
    stopped.edit(SEND, ('"call"', '"redo": true, "call"'))
    world.hangs = {"TWO!"}
    assert stopped.run().status == "waiting"
    first = world.keys[-1]
    stopped.edit(SEND, ('"call"', '"redo": true, "call"'))
    world.hangs = set()
    assert stopped.run().status == "completed"
    assert world.fresh().count("send TWO!") == 2
    assert first in world.keys[3:], "nothing says that it was done, so it is the same attempt"


def test_an_edited_result_of_an_effect_does_it(stopped: Place) -> None:
    stopped.edit(SEND, ("sent TWO!", "posted"))
    assert stopped.run().status == "completed"
    assert "send TWO!" not in world.fresh()


@pytest.mark.parametrize(("answer", "calls"), [('"result": "it has"', 0), ('"result": null, "redo": true', 1)])
def test_a_doubt_can_not_be_answered_in_its_file(place: Place, answer: str, calls: int) -> None:
    world.hangs = {"TWO!"}
    place.run()
    world.hangs = set()
    world.fresh()
    place.edit(SEND, ('"result": null', answer))
    assert place.run().status == "completed"
    assert world.fresh().count("send TWO!") == calls and not place.moment.doubts
    assert len(set(world.keys)) == len(world.keys) - calls, "once more under the same key"


WRONG = {
    "both": (('"result": "TWO"', '"result": 1, "redo": true'), "has both a changed `result` and `redo`"),
    "redo is no flag": (('"result"', '"redo": "yes", "result"'), "`redo` must be true or false"),
    "what has happened": (('"step": "read"', '"step": "write"'), "`step` can't be changed here"),
    "of another agent": (('"scope": "2"', '"agent": "bob", "scope": "2"'), "does not belong to this run"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_contradiction_is_obeyed(stopped: Place, what: str) -> None:
    change, said = WRONG[what]
    before = stopped.substance()
    stopped.edit(READ, change)
    mine = stopped.get(READ)
    with pytest.raises(Refused, match=said):
        stopped.run()
    assert stopped.substance() == before and stopped.is_at_the_moment() is False  # the rejected one lies beside it
    assert stopped.get("steps/2-two/01-read.rejected.json") == mine


@pytest.mark.parametrize("mark", [" ", "x", "-"])
def test_a_step_of_an_item_that_is_left_or_begun_anew_breaks_the_journal(stopped: Place, mark: str) -> None:
    stopped.edit("todo.md", ("[/] two", f"[{mark}] two"))
    stopped.edit(READ, ('"result": "TWO"', '"result": "ZWEI"'))
    with pytest.raises(Refused, match="starts again or leaves out"):
        stopped.run()
    assert "2" in stopped.root.scopes and not stopped.edited
    assert stopped.run().status == "completed"
    assert len(stopped.edited) == 1


def test_a_file_of_a_finished_item_is_obeyed(stopped: Place) -> None:
    old = stopped.get(READ)
    stopped.run()
    stopped.put(READ, old)
    stopped.recover()
    assert not stopped.there("steps/*/*"), "as it was written, it is removed"
    stopped.put(READ, old.replace(b'"TWO"', b'"ZWEI"'))
    with pytest.raises(Refused, match="no longer open"):
        stopped.run()
    assert stopped.is_at_the_moment() or stopped.there("steps/*/*") == [
        "steps/2-two/01-read.rejected.json",
        "steps/2-two/01-read.rejected.txt",
    ]


def test_a_step_outside_the_items_of_a_finished_run_is_not_redone(place: Place) -> None:
    @agent(state=State)
    async def plain(run: Run[State]) -> str:
        return await join(await read("a"), "!")

    place.agent = plain
    assert place.run().result == "A!"
    path = "steps/_agent/01-read.json"
    place.edit(path, ('"result": "A"', '"result": "B"'))
    place.recover()
    assert place.moment.status == "paused" and place.is_at_the_moment()
    outcome = place.run()
    assert (outcome.status, outcome.result) == ("completed", "B!")
    world.fresh()
    place.run()
    assert world.fresh() == []


def test_a_step_of_a_finished_sub_agent_is_never_reached(place: Place) -> None:
    @agent(state=State)
    async def child(run: Run[State]) -> str:
        return await join(await read("a"), "!")

    @agent(state=State)
    async def parent(run: Run[State]) -> str:
        return str(await run.spawn(child, "child")) + "?"

    async def all_of_it(run: Run[State]) -> str:
        return str(await run.spawn(parent, "parent"))

    @agent(state=State)
    async def root(run: Run[State]) -> str:
        return str(await run.scope("all", all_of_it, run))

    place.agent = root
    assert place.run().result == "A!?"
    place.edit("agents/parent/agents/child/steps/_agent/01-read.json", ('"result": "A"', '"result": "B"'))
    outcome = place.run()
    assert outcome.result == "B!?", [remark.text for remark in outcome.report.remarks]


def test_a_step_file_copied_to_another_name_is_obeyed(stopped: Place) -> None:
    data = stopped.get(READ)
    stopped.put("steps/2-two/07-read.json", data)
    stopped.put("steps/9-nine/01-read.json", data)
    stopped.recover()
    assert stopped.is_at_the_moment()


def test_a_file_of_another_agent_is_obeyed(place: Place) -> None:
    place.run("bob 1")
    mine = "agents/bob/steps/1-bob-1/01-read.json"
    data = json.loads(place.get(mine))
    del data["agent"]
    data["result"] = "forged"
    place.put(mine, json.dumps(data))
    with pytest.raises(Refused, match="does not belong"):
        place.run()


@pytest.mark.parametrize("is_edited", [True, False])
def test_what_is_saved_while_a_file_of_no_step_is_removed_is_lost(
    stopped: Place, monkeypatch: pytest.MonkeyPatch, is_edited: bool
) -> None:
    """An opening looks at all files before it removes one."""
    path, mend = "steps/2-two/09-join.json", journal.mend
    stopped.put(path, stopped.text(JOIN).replace('"TWO!"', '"TWO, I say"' if is_edited else '"TWO!"'))

    def save(*args: Any) -> None:
        mend(*args)
        stopped.put(path, stopped.text(JOIN).replace('"TWO!"', '"TWO, and once more"'))

    monkeypatch.setattr(journal, "mend", save)
    with pytest.raises(Refused) if is_edited else nullcontext():
        stopped.recover()
    assert "once more" in stopped.text(path)
    monkeypatch.undo()
    with pytest.raises(Refused, match="no longer open"):
        stopped.recover()
    kept = sorted(stopped.there("steps/2-two/*.rejected*.json"))
    assert "once more" in stopped.text(kept[0]) and not stopped.there(path)
