"""`data` in state.json of a stopped run: merged, validated by the agent's own type, or refused and kept."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import Run, agent, run
from satchel.workspace.base.errors import Conflicting, InvalidFile, Refused, SatchelError
from satchel.workspace.inbound import rejection
from satchel.workspace.store import DiskStore

from .folder import DEFINITION, Place, world


def test_a_changed_value_is_not_what_the_agent_goes_on_with(stopped: Place) -> None:
    stopped.set_data(lambda data: data.update(n=100))
    outcome = stopped.run()
    assert outcome.status == "completed" and stopped.root.data["n"] == 102
    assert any("data.n is now 100" in remark.text for remark in outcome.report.remarks)
    (record,) = stopped.edited
    assert record.patch == [{"op": "replace", "path": "/n", "value": 100}] and record.base is not None
    assert "read two" not in world.fresh(), "a change of the data repeats no step"


def test_a_finished_run_whose_data_are_edited_is_run_again(finished: Place) -> None:
    finished.set_data(lambda data: data.update(n=100))
    assert (finished.run().status, world.fresh()) == ("completed", [])
    assert finished.root.data["n"] == 100 and finished.moment.attempt == 1 and finished.is_at_the_moment()


def test_the_data_of_a_sub_agent_are_not_merged(finished: Place) -> None:
    finished.set_data(lambda data: data.update(n=100), "agents/bob/agents/carol/state.json")
    finished.recover()
    assert finished.moment.agents["bob/carol"].data["n"] == 100 and finished.is_at_the_moment()
    assert finished.edited[0].agent == "bob/carol"


def from_null(place: Place, **data: Any) -> str:
    """What a person makes of state.json before the agent is first entered, when `data` is null."""
    place.recover()
    found = json.loads(place.get("state.json"))
    assert found["data"] is None
    return json.dumps(found | {"data": data})


@pytest.mark.parametrize("fails", ["one", "two"])
def test_data_that_were_null_when_they_were_edited_conflict(place: Place, fails: str) -> None:
    edited = from_null(place, notes={"from": "ada"})
    assert place.run(fails).status == "failed"
    words = place.root.data["words"]
    place.put("state.json", edited)
    assert place.run().status == "completed"
    assert place.root.data["notes"].pop("from") == "ada" and place.root.data["words"][: len(words)] == words


def test_a_default_overrules_a_person_or_a_person_the_run(place: Place) -> None:
    edited = from_null(place, n=100)
    assert place.run("one").status == "failed"
    place.put("state.json", edited)
    place.recover()
    assert place.root.data == {"words": [], "n": 100, "notes": {}}
    assert place.run("two").status == "failed" and place.root.data["n"] == 101
    place.put("state.json", edited.replace("100", "7"))
    with pytest.raises(Conflicting, match=r"data\.n: it was 0; the run has set it to 101, the file says 7"):
        place.run()


REFUSED: dict[str, Any] = {
    "another type": lambda data: data.update(n="many"),
    "not what a validator takes": lambda data: data.update(n=13),
    "no object": lambda data: [1],
    "an unknown key, which decoding drops": lambda data: data.update(nots={"a": "b"}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_data_that_the_type_does_not_take_are_merged_or_lost(stopped: Place, why: str) -> None:
    good, before = stopped.get("state.json"), stopped.substance()
    stopped.set_data(REFUSED[why])
    stopped.edit("todo.md", ("[ ] three", "[x] three"))
    mine = stopped.get("state.json")
    with pytest.raises((InvalidFile, Refused)) as refusal:
        stopped.run()
    assert refusal.value.path == "state.json" and "state.rejected.json" in str(refusal.value)
    assert stopped.get("state.rejected.json") == mine and stopped.get("state.json") == good
    assert "state.json was not accepted" in stopped.text("state.rejected.txt")
    assert stopped.substance() == before and not stopped.edited, "nothing is merged, of no file"
    stopped.run()
    assert len(stopped.edited) == 1, "the edit of the plan has waited"


def test_a_misspelt_key_is_refused_without_a_word_of_the_right_one(stopped: Place) -> None:
    stopped.set_data(lambda data: data.update(wrods=["a"]))
    with pytest.raises(InvalidFile, match=r"\(data\.wrods\): found the unknown key `wrods`, .* Did you mean `words`\?"):
        stopped.run()


def test_a_refusal_is_told_after_its_edit_was_mended(stopped: Place) -> None:
    """Under `opening`, where the last opening speaks until the next one."""

    def told() -> list[str]:
        return [each.text for each in satchel.open(stopped.folder).status().report if "wrods" in each.text]

    stopped.set_data(lambda data: data.update(wrods=["a"]))
    with pytest.raises(InvalidFile):
        stopped.run()
    assert len(told()) == 1
    stopped.set_data(lambda data: data.update(words=["a"]))
    assert not told()
    stopped.run()
    assert not told()


def test_a_key_that_the_agent_keeps_or_drops_stops_an_edit(tmp_path: Path) -> None:
    """It is no mistake of the editor."""

    @dataclass
    class Before:
        count: int = 0
        old: int = 0

    @dataclass
    class After:
        count: int = 0

    async def main(run: Run[Any]) -> int:
        if isinstance(run.state, Before):
            raise RuntimeError("later")
        return int(run.state.count)

    before = agent(state=Before)(main)
    after = agent(state=After, unknown="keep")(main)
    (tmp_path / "workspace.yaml").write_text(DEFINITION.format("old-1"))
    assert run(tmp_path, before).status == "failed"
    file = tmp_path / "state.json"
    file.write_text(file.read_text().replace('"count": 0', '"count": 7'))
    assert run(tmp_path, after).result == 7


def test_a_second_refusal_overwrites_the_first(stopped: Place) -> None:
    for number, value in enumerate(("a", "b", "c", "a"), 1):
        stopped.set_data(lambda data, value=value: data.update(n=value))
        with pytest.raises(InvalidFile):
            stopped.run()
        assert len(stopped.there("state.rejected*.json")) == min(number, 3), "the same bytes are kept once"
    assert stopped.there("state.rejected*") == [
        f"state.rejected{more}.{kind}" for more in ("-2", "-3", "") for kind in ("json", "txt")
    ]
    assert '"b"' in stopped.text("state.rejected-2.json")


@pytest.mark.parametrize("key", ["status", "open", "usage", "attempt", "run_id", "format"])
def test_what_is_not_theirs_to_change_is_changed(stopped: Place, key: str) -> None:
    whole = json.loads(stopped.get("state.json"))
    whole[key] = "other"
    stopped.put("state.json", json.dumps(whole))
    good = stopped.substance()
    with pytest.raises((Refused, InvalidFile)):
        stopped.run()
    assert stopped.substance() == good and stopped.is_at_the_moment()


@pytest.mark.parametrize("at", range(4))
def test_a_crash_between_keeping_and_restoring_changes_something(
    stopped: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    stopped.set_data(lambda data: data.update(n="many"))
    mine, before = stopped.get("state.json"), stopped.substance()
    left = at

    class Crash(BaseException): ...

    def replace(self: DiskStore, path: str, *args: Any, **options: Any) -> str:
        nonlocal left
        if "state." in path:
            left -= 1
            if left < 0:
                raise Crash
        return real(self, path, *args, **options)

    real = DiskStore.replace
    with monkeypatch.context() as patched:
        patched.setattr(DiskStore, "replace", replace)
        with pytest.raises((Crash, InvalidFile)):
            stopped.recover()
    if stopped.get("state.json") == mine:
        with pytest.raises(SatchelError):
            stopped.run()
    assert stopped.there("state.rejected*.json") == ["state.rejected.json"]
    assert stopped.get("state.rejected.json") == mine
    assert stopped.substance() == before and stopped.is_at_the_moment()


def test_an_edit_saved_while_a_refused_one_is_restored_is_lost(stopped: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    good = stopped.get("state.json")
    stopped.set_data(lambda data: data.update(n="many"))

    def reject(*args: Any) -> str:
        path = real(*args)
        stopped.put("state.json", good.replace(b'"n": 1', b'"n": 5'))
        return path

    real = rejection.reject
    monkeypatch.setattr(rejection, "reject", reject)
    with pytest.raises(InvalidFile):
        stopped.recover()
    stopped.recover()
    assert stopped.root.data["n"] == 5


def test_a_sub_agents_schema_is_not_asked(finished: Place) -> None:
    finished.set_data(lambda data: data.update(n="many"), "agents/bob/state.json")
    with pytest.raises(InvalidFile, match=r"data\.n"):
        finished.recover()
    assert finished.there("agents/bob/state.rejected*") == [
        "agents/bob/state.rejected.json",
        "agents/bob/state.rejected.txt",
    ]


@pytest.mark.parametrize("schema", ["", "{", "[]", "deleted"])
def test_a_damaged_schema_lets_anything_pass(stopped: Place, schema: str) -> None:
    path = ".satchel/schemas/data.json"
    if schema == "deleted":
        shutil.rmtree(stopped.folder / ".satchel/schemas")
    else:
        stopped.put(path, schema)
    stopped.set_data(lambda data: data.update(n="many"))
    with pytest.raises(InvalidFile, match='found "many", expected a whole number'):
        stopped.run()
    stopped.run()
    assert json.loads(stopped.get(path))["$id"] == "data.json", "it is restored"
