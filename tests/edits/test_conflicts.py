"""A file that was edited while the run went on without it: nothing is lost, and a person decides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from satchel.workspace.base.errors import Conflicting
from satchel.workspace.inbound import Side
from satchel.workspace.inspect.report import Report
from satchel.workspace.lifecycle.opening import opened

from .folder import Place, world


def settle(place: Place, **choices: Side) -> list[str]:
    report = Report()
    named: dict[str, Side] = {path.replace("__", "/").replace("_", "."): side for path, side in choices.items()}
    with opened(place.store, "merge", report, choices=named) as workspace:
        workspace.close()
    return [remark.text for remark in report.remarks]


@pytest.fixture
def stale(place: Place) -> Place:
    """Stopped in its first item, with copies of its files aside; then gone on with to the third."""
    place.run("one")
    place.set_data(lambda data: data.update(words=["x"]))
    place.recover()
    for path in ("todo.md", "state.json"):
        place.put(f"aside/{path}", place.get(path))
    place.set_data(lambda data: data.update(words=["y"]))
    place.run("bob 1")
    world.fresh()
    return place


def back(place: Place, path: str, *changes: tuple[str, str]) -> bytes:
    place.put(path, place.get(f"aside/{path}"))
    if changes:
        place.edit(path, *changes)
    return place.get(path)


def test_an_unedited_old_copy_takes_the_run_back(stale: Place) -> None:
    before = stale.substance()
    for path in ("todo.md", "state.json"):
        back(stale, path)
    stale.recover()
    assert stale.substance() == before and stale.is_at_the_moment()


def test_an_old_copy_with_an_edit_undoes_what_was_done_since(stale: Place) -> None:
    back(stale, "todo.md", ("- [ ] three", "- [ ] four\n- [ ] three"))
    back(stale, "state.json", ('"notes": {}', '"notes": {"a": "b"}'))
    stale.recover()
    assert stale.text().startswith("- [x] one ^1\n- [x] two ^2\n- [/] ask bob ^3\n- [ ] four\n- [ ] three\n")
    assert stale.root.data["notes"] == {"a": "b"} and stale.root.data["words"] == ["y", "ONE!", "TWO!"]
    assert stale.edited[-1].base is not None and stale.edited[-1].base < stale.moment.seq - 10


def asked(place: Place, path: str) -> str:
    before, mine = place.substance(), place.get(path)
    with pytest.raises(Conflicting) as question:
        place.run()
    assert question.value.path == path and place.get(path) == mine and place.substance() == before
    stem, _, extension = path.rpartition(".")
    assert place.get(f"conflicts/{stem}.theirs.{extension}") == mine
    assert place.there(f"conflicts/{stem}.ours.{extension}") and place.there(f"conflicts/{stem}.txt")
    assert world.fresh() == []
    return str(question.value)


CONFLICTS: dict[str, tuple[str, Callable[[Place], object]]] = {
    "an array changed by both": ("state.json", lambda place: back(place, "state.json", ('"x"', '"mine"'))),
    "a key changed by both": ("state.json", lambda place: back(place, "state.json", ('"n": 0', '"n": 9'))),
    "a mark changed by both": ("todo.md", lambda place: back(place, "todo.md", ("[ ] two", "[-] two"))),
    "an untick without a stamp": (
        "todo.md",
        lambda place: place.put("todo.md", place.without_stamp("todo.md").replace(b"[x] one", b"[ ] one")),
    ),
    "a deletion without a stamp": (
        "todo.md",
        lambda place: place.put("todo.md", place.without_stamp("todo.md").replace(b"- [x] two ^2\n", b"")),
    ),
    "all items removed": (
        "todo.md",
        lambda place: place.put(
            "todo.md", place.text().partition("- [")[0] + place.text()[place.text().rindex("\n<!--") :]
        ),
    ),
}


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("how", CONFLICTS)
@pytest.mark.parametrize("side", ["ours", "theirs", "edited"])
def test_a_contradiction_is_decided_without_a_person(stale: Place, how: str, side: Side) -> None:
    path, make = CONFLICTS[how]
    make(stale)
    mine, before = stale.get(path), stale.substance()
    asked(stale, path)
    asked(stale, path)  # and again, until it is settled
    settle(stale, **{path.replace(".", "_"): side})
    assert not stale.there("conflicts/*") and stale.is_at_the_moment()
    if side == "ours":
        assert stale.substance() == before
        stem, _, extension = path.rpartition(".")
        assert stale.get(f"{stem}.rejected.{extension}") == mine, "what was not taken is kept"
    else:
        assert stale.substance() != before
        (record,) = stale.edited[-1:]
        assert record.file == path


def test_settling_does_not_take_the_side_that_was_named(stale: Place) -> None:
    back(stale, "state.json", ('"x"', '"mine"'), ('"notes": {}', '"notes": {"a": "b"}'))
    asked(stale, "state.json")
    settle(stale, state_json="ours")
    assert stale.root.data["words"] == ["y", "ONE!", "TWO!"]
    assert stale.root.data["notes"] == {"a": "b"}, "what does not conflict is merged in any case"


def test_theirs_and_edited_are_the_same(stale: Place) -> None:
    back(stale, "state.json", ('"x"', '"mine"'))
    asked(stale, "state.json")
    settle(stale, state_json="theirs")
    assert stale.root.data == {"words": ["mine"], "n": 2, "notes": {}}
    back(stale, "state.json", ('"x"', '"again"'))
    settle(stale, state_json="edited")
    assert stale.root.data == {"words": ["again"], "n": 0, "notes": {}}, "the file in every respect"


def test_one_of_two_questions_can_not_be_settled_alone(stale: Place) -> None:
    back(stale, "state.json", ('"n": 0', '"n": 9'))
    mine = back(stale, "todo.md", ("[ ] two", "[-] two"))
    asked(stale, "state.json")
    settle(stale, state_json="theirs")
    assert stale.root.data["n"] == 9 and stale.get("todo.md") == mine
    assert stale.there("conflicts/*") == [
        f"conflicts/todo.{name}" for name in ("base.md", "ours.md", "theirs.md", "txt")
    ]
    asked(stale, "todo.md")
    settle(stale, todo_md="theirs")
    assert not stale.there("conflicts/*") and "[-] two" in stale.text() and stale.is_at_the_moment()


def test_appending_by_both_is_a_conflict(stale: Place) -> None:
    stale.recover()
    stale.put("aside/state.json", stale.get("state.json"))
    stale.run("three")
    back(stale, "state.json", ('"TWO!"\n', '"TWO!", "mine"\n'))
    stale.recover()
    assert stale.root.data["words"] == ["y", "ONE!", "TWO!", "mine"]


def test_an_agent_that_rewrites_the_plan_without_stamp_and_ids_is_refused(stale: Place) -> None:
    stale.put("todo.md", "# My plan\n\n- [x] one\n- [x] two\n- [ ] new\n- [ ] ask bob\n- [x] three\n")
    assert stale.run().status == "completed"
    assert stale.text().startswith("# My plan\n\n- [x] one ^1\n- [x] two ^2\n- [x] new")
    calls = world.fresh()
    assert "read new" in calls and not {"read one", "read two", "read three"} & {*calls}
