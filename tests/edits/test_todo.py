"""todo.md of a stopped run: what a person's marks, lines and order mean, and that it is said and recorded."""

from __future__ import annotations

import getpass
import socket

import pytest

from satchel.workspace.base.errors import InvalidFile

from .folder import Place, world


def said(place: Place) -> list[str]:
    return [remark.text for remark in place.run().report.remarks if remark.kind == "edited"]


def test_an_unticked_item_is_skipped_or_its_effect_done_twice(finished: Place) -> None:
    finished.edit("todo.md", ("[x] two", "[ ] two"))
    (text,) = said(finished)
    when = finished.moment.root.past["2"].when
    assert text == (
        f'todo.md: item 2 (\'two\') will be done again: 2 steps again; send("text":"TWO!") of '
        f"{next(iter(when.values()))[11:16]} is kept"
    )
    assert world.fresh() == ["read two", "join TWO"]
    assert "[x] two ^2" in finished.text() and finished.root.data["words"].count("TWO!") == 2


def test_an_effect_whose_arguments_have_changed_is_done_again_unasked(finished: Place) -> None:
    finished.edit("todo.md", ("[x] two", "[ ] two"))
    outcome = finished.run(suffix="?")
    assert (outcome.status, [doubt.why for doubt in outcome.doubts]) == ("waiting", ["unclaimed"])
    assert "send TWO?" not in world.fresh()


def test_an_unknown_mark_is_taken_for_something(stopped: Place) -> None:
    stopped.edit("todo.md", ("[ ] three", "[?] three"))
    with pytest.raises(InvalidFile, match=r"line 4: found the mark"):
        stopped.run()
    assert stopped.is_at_the_moment() and not stopped.edited


@pytest.mark.parametrize("typed", ["-[ ] New", "  – [ ] New", "• [ ] New", "- ☐ New", "[ ] New"])
def test_a_checkbox_that_is_none_is_acted_on_as_text_of_the_item_above(stopped: Place, typed: str) -> None:
    stopped.edit("todo.md", ("- [ ] three", f"- [ ] three\n{typed}"))
    with pytest.raises(InvalidFile, match=r'line 5: found ".*New", which looks like an item.*expected "- \[ \] New"'):
        stopped.run()
    assert stopped.is_at_the_moment() and not stopped.edited
    assert typed in stopped.text("todo.rejected.md")


@pytest.mark.parametrize("typed", ["-\u00a0[ ] New", "\ufeff- [\u00a0] New", "- ［ ］ New", "1.[ ] New"])
def test_an_item_with_an_invisible_slip_is_glued_to_the_one_above(stopped: Place, typed: str) -> None:
    stopped.edit("todo.md", ("- [ ] three", f"- [ ] three\n  its\u00a0note\n{typed}"))
    assert any("the item 'New' is new" in text for text in said(stopped))
    assert stopped.run().status == "completed" and "read New" in world.fresh()
    marker = typed.lstrip("\ufeff")[:1].replace("1", "1.")
    assert f"\n  its\u00a0note\n{marker} [x] New ^" in stopped.text() and stopped.is_at_the_moment()


def test_a_first_plan_with_an_invisible_slip_loses_an_item(place: Place) -> None:
    place.put("todo.md", "-\u00a0[ ] one\n- [\u00a0] two\n")
    assert place.run("two").status == "failed"
    assert place.text().startswith("- [x] one ^1\n- [/] two ^2\n")
    place.put("todo.md", "-\u00a0[ ] one\n- [\u00a0] two\n")  # the version from before the run, which came back late
    assert place.run().status == "completed" and world.fresh().count("read one") == 1


def test_a_list_item_without_a_checkbox_becomes_text_without_a_word(stopped: Place) -> None:
    stopped.edit("todo.md", ("- [ ] three", "- New\n- [ ] three"))
    (text,) = said(stopped)
    assert text == "todo.md: line 4: '- New' has no checkbox, so it is text and not an item; write '- [ ] New'"
    stopped.put("todo.md", stopped.text() + "\nMore text.\n")
    assert "has no checkbox" not in " ".join(said(stopped)), "it is told each time"


def test_a_plan_in_utf_16_is_called_binary(stopped: Place) -> None:
    (stopped.folder / "todo.md").write_bytes(stopped.text().encode("utf-16"))
    with pytest.raises(InvalidFile, match=r"a file in UTF-16, expected UTF-8"):
        stopped.run()


def test_an_edit_is_not_recorded_with_patch_base_who_and_when(finished: Place) -> None:
    before = finished.moment.seq
    finished.edit("todo.md", ("[x] two", "[ ] two"))
    finished.recover()
    (record,) = finished.edited
    assert (record.file, record.base, record.redone) == ("todo.md", before, ("2",))
    assert record.by == f"{getpass.getuser()}@{socket.gethostname()}" and record.saved.endswith("Z")
    assert record.plan == ((1, 1, "- [ ] two ^2\n"),)
    assert finished.is_at_the_moment()


def test_a_finished_run_with_prose_edited_is_run_again(finished: Place) -> None:
    finished.put("todo.md", "# A title\n\n" + finished.text())
    outcome = finished.run()
    assert (outcome.status, world.fresh(), finished.moment.attempt) == ("completed", [], 1)
    assert finished.text().startswith("# A title\n") and finished.is_at_the_moment()
    assert [record.says for record in finished.edited] == [("the text around the items",)]


def test_a_ticked_item_is_done(stopped: Place) -> None:
    stopped.edit("todo.md", ("[ ] three", "[x] three"))
    stopped.run()
    assert not any("three" in call for call in world.fresh())


def test_a_cancelled_item_is_done(stopped: Place) -> None:
    stopped.edit("todo.md", ("[ ] three", "[-] three"))
    assert stopped.run().status == "completed"
    assert not any("three" in call for call in world.fresh()) and "[-] three" in stopped.text()


def test_a_removed_item_is_done(stopped: Place) -> None:
    stopped.edit("todo.md", ("- [ ] three\n", ""))
    assert stopped.run().status == "completed"
    assert not any("three" in call for call in world.fresh()) and "three" not in stopped.text()


def test_an_added_item_is_done_elsewhere_than_in_its_place(stopped: Place) -> None:
    stopped.edit("todo.md", ("- [/] two", "- [ ] four\n- [/] two"))
    stopped.run()
    assert world.fresh()[:3] == ["read four", "join FOUR", "send FOUR!"]


def test_a_new_order_is_not_followed(stopped: Place) -> None:
    stopped.edit("todo.md", ("- [ ] three\n", ""), ("- [/] two", "- [ ] three\n- [/] two"))
    stopped.run()
    assert world.fresh()[0] == "read three"


def test_an_item_that_is_reworded_and_moved_before_it_begins_is_called_new(stopped: Place) -> None:
    stopped.edit("todo.md", ("- [ ] ask bob\n- [ ] three", "- [ ] ask bob"), ("- [/] two", "- [ ] three!\n- [/] two"))
    assert said(stopped) == [
        "todo.md: the item 'three' now reads 'three!'",
        "todo.md: the order of the items has changed",
    ]


def test_an_item_that_is_replaced_is_called_reworded(stopped: Place) -> None:
    stopped.edit("todo.md", ("- [ ] three", "- [ ] call the plumber"))
    assert said(stopped) == [
        "todo.md: the item 'three' is removed and won't be done",
        "todo.md: the item 'call the plumber' is new",
    ]


def test_a_begun_item_that_is_reworded_is_another_one(stopped: Place) -> None:
    stopped.edit("todo.md", ("[/] two ^2", "[/] zwei ^2"))
    outcome = stopped.run()
    assert world.fresh()[:2] == ["read zwei", "join ZWEI"], "what its text goes into is made anew"
    assert [doubt.why for doubt in outcome.doubts] == ["unclaimed"], "the mail of the old words has gone out"


def test_items_regrouped_under_headings_are_done_again(stopped: Place) -> None:
    stopped.put(
        "todo.md",
        stopped.text()
        .replace("- [x] one", "## Done\n\n- [x] one")
        .replace("- [/] two", "\n## Now\n\n- [/] two")
        .replace("- [ ] three", "\n## Later\n\nSome words.\n\n- [ ] three"),
    )
    assert stopped.run().status == "completed"
    calls = world.fresh()
    assert "read two" not in calls and "read one" not in calls and calls.count("read three") == 1
    assert "## Later\n\nSome words.\n\n- [x] three ^4" in stopped.text()


def test_a_begun_item_marked_open_keeps_its_steps(stopped: Place) -> None:
    stopped.edit("todo.md", ("[/] two", "[ ] two"))
    stopped.run("two")
    assert world.fresh() == ["read two", "join TWO"], "its effect is kept"


def test_a_wanted_item_below_a_cancelled_parent_is_done(stopped: Place) -> None:
    stopped.edit("todo.md", ("- [ ] three", "- [-] all\n  - [ ] three\n  - [ ] four"))
    assert stopped.run().status == "completed"
    assert not any(word in call for call in world.fresh() for word in ("three", "four"))


# A doubt outlives its item


@pytest.fixture
def doubtful(place: Place) -> Place:
    world.hangs = {"TWO!"}
    assert place.run().status == "waiting"
    world.fresh()
    return place


DROPPED = {
    "ticked": ("- [/] two", "- [x] two"),
    "cancelled": ("- [/] two", "- [-] two"),
    "removed": ("- [/] two ^2\n", ""),
    "put below a cancelled one": ("- [/] two", "- [-] all\n  - [/] two"),
}


@pytest.mark.parametrize("how", DROPPED)
def test_a_doubt_is_settled_by_dropping_its_item(doubtful: Place, how: str) -> None:
    doubtful.edit("todo.md", DROPPED[how])
    outcome = doubtful.run()
    assert (outcome.status, [doubt.step for doubt in outcome.doubts]) == ("waiting", ["send"]), how
    assert "send TWO!" not in world.fresh()
    assert len(doubtful.moment.doubts) == 1
    # It is answered in its file, and then it is over.
    (file,) = doubtful.there("steps/2-two/*-send.json")
    doubtful.edit(file, ('"result": null', '"result": "it has"'))
    outcome = doubtful.run()
    assert outcome.status == "completed" and not doubtful.moment.doubts
    assert "2" not in doubtful.root.scopes and not doubtful.there("steps/2-two")
    assert "send TWO!" not in world.fresh()


def test_the_kept_effect_of_a_dropped_item_is_forgotten(stopped: Place) -> None:
    stopped.edit("todo.md", ("- [/] two", "- [-] two"))
    assert stopped.run().status == "completed"
    world.fresh()
    stopped.edit("todo.md", ("- [-] two", "- [ ] two"))
    assert stopped.run().status == "completed"
    assert world.fresh() == ["read two", "join TWO"]
