"""Merging a person's plan with the run's, case by case. What holds for any three plans is in ..._properties.py."""

from __future__ import annotations

from collections.abc import Callable

import growth
import pytest

from satchel.workspace.plan import (
    Changes,
    MergedPlan,
    Pair,
    Plan,
    between,
    changes,
    conflict_sides,
    merge_plans,
    settle,
)
from satchel.workspace.plan.task_lines import apply, split

DIGEST = "# Digest\n\nSome words.\n\n- [x] Read ^1\n- [/] Summarise ^2\n- [ ] Check\n- [ ] Send\n"


def merged(base: str | None, ours: str, theirs: str, **options: str) -> MergedPlan:
    found = merge_plans(None if base is None else Plan(base), Plan(ours), Plan(theirs), **options)  # type: ignore[arg-type]
    if not found.conflicts:
        before = None if base is None else Plan(base)
        again = merge_plans(before, found.plan, Plan(theirs))
        if not options:
            assert (again.conflicts, again.plan.text) == ((), found.plan.text), "merged again it is the same"
        assert found.plan.tasks == reread(found.plan).tasks
    return found


def reread(plan: Plan) -> Plan:
    return Plan(plan.text, plan.own_work)


def text(base: str | None, ours: str, theirs: str, **options: str) -> str:
    found = merged(base, ours, theirs, **options)
    assert found.conflicts == (), [str(conflict) for conflict in found.conflicts]
    return found.plan.text


def whys(base: str | None, ours: str, theirs: str) -> list[tuple[int, str, str]]:
    found = merged(base, ours, theirs)
    assert found.plan.text == ours
    assert all("\n" not in str(conflict) for conflict in found.conflicts)
    return [(conflict.line, conflict.text, conflict.why) for conflict in found.conflicts]


# The run stood still


@pytest.mark.parametrize(
    "theirs",
    [
        DIGEST.replace("[ ] Check", "[x] Check"),
        DIGEST.replace("[ ] Check", "[X] Check"),
        DIGEST.replace("[x] Read", "[ ] Read"),
        DIGEST.replace("[/] Summarise", "[-] Summarise"),
        DIGEST.replace("[ ] Check", "[/] Check"),
        DIGEST.replace("Summarise ^2", "Summarise it all ^2"),
        DIGEST.replace("- [ ] Check\n", ""),
        DIGEST.replace("Some words.", "Others.\n\nAnd more."),
        DIGEST + "- [ ] New\n",
        DIGEST.replace("\n", "\r\n"),
        DIGEST.replace("- [ ] Check\n- [ ] Send\n", "- [x] Send\n  - [ ] Check\n\n    a note"),
        "\ufeff" + DIGEST,
        "- [ ] Quite another\n",
        "## A\n\n- [ ] Send\n- [ ] Check\n\n## B\n\n* [x] Read ^1\n* [/] Summarise ^2\n",
    ],
    ids=[
        "ticked",
        "ticked with X",
        "unticked",
        "skipped",
        "begun",
        "other words",
        "removed",
        "other prose",
        "added",
        "other line ends",
        "moved below another",
        "a byte order mark",
        "another plan",
        "regrouped",
    ],
)
def test_an_edit_of_a_plan_at_rest_is_taken_byte_for_byte(theirs: str) -> None:
    assert text(DIGEST, DIGEST, theirs) == theirs


def test_a_file_that_was_not_edited_changes_nothing() -> None:
    ours = DIGEST.replace("[/]", "[x]") + "- [ ] More\n"
    assert text(DIGEST, ours, DIGEST) == ours
    assert text(DIGEST, ours, ours) == ours
    assert text(None, ours, ours) == ours


@pytest.mark.parametrize("base", [DIGEST, None])
def test_a_deleted_id_is_given_back(base: str | None) -> None:
    theirs = "* [/] Summarise\n* [ ] Send\n* [X] Read  \r\n  * [ ] New\n* [ ] Check\n"
    expected = "* [/] Summarise ^2\n* [ ] Send\n* [ ] Read ^1  \r\n  * [ ] New\n* [ ] Check\n"
    assert text(base, DIGEST, theirs) == expected


def test_an_id_is_the_same_in_any_case() -> None:
    assert text("- [ ] a ^Up\n", "- [x] a ^Up\n", "- [ ] b ^up\n") == "- [x] b ^up\n"


# The run went on


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "expected"),
    [
        # ids and marks given since, words corrected since
        ("- [ ] a\n- [ ] b\n", "- [/] a ^1\n- [ ] b\n", "- [ ] a\n- [x] b\n", "- [/] a ^1\n- [x] b\n"),
        ("- [ ] a\n- [ ] b\n", "- [x] a ^1\n- [/] b ^2\n", "- [ ] a\n- [ ] bee\n", "- [x] a ^1\n- [/] bee ^2\n"),
        ("- [ ] a\n- [ ] b\n", "- [/] a ^1\n- [ ] b\n", "- [ ] x\n- [ ] y\n", "- [/] x ^1\n- [ ] y\n"),
        ("- [ ] a\n", "- [/] a ^1\n", "- [ ] a ^mine\n", "- [/] a ^1\n"),
        # moved by a person while the run ticked it, and with the note that the run put there
        ("- [ ] a ^1\n- [ ] b\n", "- [x] a ^1\n- [ ] b\n", "- [ ] b\n- [ ] a ^1\n", "- [ ] b\n- [x] a ^1\n"),
        (
            "- [/] a ^1\n- [ ] b\n- [ ] c\n",
            "- [x] a ^1\n\n  a note\n- [ ] b\n- [ ] c\n",
            "- [ ] b\n- [/] a ^1\n- [ ] c\n",
            "- [ ] b\n- [x] a ^1\n\n  a note\n- [ ] c\n",
        ),
        (
            "- [ ] p\n- [/] a ^1\n",
            "- [ ] p\n- [/] a ^1\n\n  a note\n  - [ ] sub\n",
            "- [ ] p\n  - [/] a ^1\n",
            "- [ ] p ^2\n  - [/] a ^1\n\n    a note\n    - [ ] sub\n",
        ),
        # a note goes with its item
        ("- [/] a ^1\n- [ ] b\n", "- [x] a ^1\n\n  note\n- [ ] b\n", "- [ ] b\n", "- [ ] b\n"),
        ("- [/] a ^1\n", "- [x] a ^1\n\n  note\n", "- [/] A ^1\n", "- [x] A ^1\n\n  note\n"),
        # both added: theirs, then ours, each inside the item it was added to
        ("- [ ] a\n", "- [ ] a\n- [ ] o\n", "- [ ] a\n- [ ] t\n", "- [ ] a\n- [ ] t\n- [ ] o\n"),
        ("- [ ] a\n", "- [ ] a\n- [ ] o\n", "- [ ] a\n  - [ ] t\n", "- [ ] a ^1\n  - [ ] t\n- [ ] o\n"),
        ("- [ ] a\n", "- [ ] a\n  - [ ] o\n", "- [ ] a\n- [ ] t\n", "- [ ] a\n  - [ ] o\n- [ ] t\n"),
        ("- [ ] a\n", "- [ ] a\n- [ ] o\n", "- [ ] a\n\n## T\n\n- [ ] t\n", "- [ ] a\n- [ ] o\n\n## T\n\n- [ ] t\n"),
        ("- [ ] a\n", "- [ ] a\n\n  note\n", "- [ ] a\n\nprose\n", "- [ ] a\n\n  note\n\nprose\n"),
        ("", "# T\n\n- [ ] a\n", "hello\n", "hello\n# T\n\n- [ ] a\n"),
        ("- [ ] a", "- [ ] a\n- [ ] o\n", "- [ ] A", "- [ ] A\n- [ ] o\n"),
        # ours in the ways of the file it goes into
        ("- [ ] a\n", "- [/] a ^1\n- [ ] o\n", "- [ ] a\r\n- [ ] t\r\n", "- [/] a ^1\r\n- [ ] t\r\n- [ ] o\r\n"),
        (
            "\ufeff- [ ] a\n- [ ] b\n",
            "\ufeff- [x] a\n- [ ] o\n- [ ] b\n",
            "\ufeff- [ ] b\n- [ ] a\n",
            "\ufeff- [ ] b\n- [x] a\n- [ ] o\n",
        ),
        # what the run finished meanwhile stays so
        ("- [ ] p\n  - [ ] a ^1\n", "- [x] p\n  - [x] a ^1\n", "- [ ] p\n  - [ ] a\n", "- [x] p\n  - [x] a ^1\n"),
        # one side only
        ("p\n\nq\n- [ ] a\n", "p2\n\nq\n- [ ] a\n", "p\n\nq2\n- [ ] a\n", "p2\n\nq2\n- [ ] a\n"),
        ("p\n- [ ] a\n- [ ] b\n", "p2\n- [ ] a\n- [ ] b\n", "p\n- [ ] b\n- [ ] a\n", "p2\n- [ ] b\n- [ ] a\n"),
        ("- [ ] a\n- [ ] b\n", "- [ ] b\n", "- [ ] a\n- [x] b\n", "- [x] b\n"),
        (
            "- [ ] a\n- [ ] b\n- [ ] c\n",
            "- [ ] c\n- [ ] a\n- [ ] b\n",
            "- [ ] a\n- [ ] b\n- [x] c\n",
            "- [x] c\n- [ ] a\n- [ ] b\n",
        ),
        # both the same
        ("p\n- [ ] a\n", "q\n- [x] a\n", "q\n- [x] a\n- [ ] n\n", "q\n- [x] a\n- [ ] n\n"),
        ("- [ ] a\n", "- [x] n\n", "- [ ] n\n", "- [x] n\n"),
        # twins
        (
            "- [ ] a\n- [ ] a\n",
            "- [x] a ^1\n- [/] a ^2\n",
            "- [ ] a\n- [ ] a\n- [ ] a\n",
            "- [x] a ^1\n- [/] a ^2\n- [ ] a\n",
        ),
        ("- [ ] a\n- [ ] a\n", "- [x] a ^1\n- [ ] a ^2\n", "- [ ] a\n- [x] a\n", "- [x] a ^1\n- [x] a ^2\n"),
        # both reopened b, so it does not end with what is below it
        (
            "- [x] a\n- [x] b\n  - [ ] c\n    - [/] d\n",
            "- [x] a\n- [/] b\n  - [ ] c\n    - [/] d\n",
            "- [/] a\n- [/] b\n  - [-] d\n",
            "- [/] a\n- [/] b\n  - [-] d\n",
        ),
        # without a base, a person's mark of a parent that the run has finished in another way
        (None, "- [-] a\n  - [ ] b\n", "- [x] a\n  - [ ] b\n", "- [x] a\n  - [ ] b\n"),
    ],
)
def test_what_both_did_is_joined(base: str | None, ours: str, theirs: str, expected: str) -> None:
    assert text(base, ours, theirs) == expected


def test_a_list_that_is_regrouped_under_headings_keeps_what_the_run_did_meanwhile() -> None:
    ours = DIGEST.replace("[/] Summarise ^2\n", "[x] Summarise ^2\n\n  took a while\n").replace("Send", "Send ^3")
    theirs = "# Digest\n\n## Now\n\n- [ ] Send\n- [ ] Check\n\n## Later\n\n- [/] Summarise ^2\n- [x] Read ^1\n"
    assert text(DIGEST, ours, theirs) == (
        "# Digest\n\n## Now\n\n- [ ] Send ^3\n- [ ] Check\n\n"
        "## Later\n\n- [x] Summarise ^2\n\n  took a while\n- [x] Read ^1\n"
    )


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "expected"),
    [
        (" ", "x", "-", None),
        ("/", "x", " ", None),
        ("x", " ", "-", None),
        ("-", "x", " ", None),
        ("x", " ", "x", " "),
        (" ", "/", "x", "x"),
        (" ", "x", "/", "x"),
        (" ", " ", "/", "/"),
        (" ", "/", "-", "-"),
        ("/", "/", " ", " "),
        ("x", "/", " ", "/"),
        ("x", " ", "/", "/"),
        (" ", "x", "X", "X"),
        ("/", " ", "x", None),
    ],
)
def test_marks_that_both_changed(base: str, ours: str, theirs: str, expected: str | None) -> None:
    """Each is what a version has between the brackets."""
    one, two, three = (f"- [{mark}] a ^1\n- [ ] b\n" for mark in (base, ours, theirs))
    if expected is None:
        assert whys(one, two, three) == [(1, "a", "mark")]
        assert text(one, two, three, prefer="ours") == two
        assert text(one, two, three, prefer="theirs") == three
    else:
        assert text(one, two, three) == f"- [{expected}] a ^1\n- [ ] b\n"


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "why"),
    [
        ("p\n- [ ] a\n", "q\n- [ ] a\n", "r\n- [ ] a\n", (1, "r", "prose")),
        ("- [ ] a ^1\n", "- [ ] b ^1\n", "- [ ] c ^1\n", (1, "c", "text")),
        ("- [ ] x\n- [ ] a\n", "- [ ] x\n- [ ] b\n", "- [ ] x\n- [ ] c\n", (2, "c", "text")),
        ("- [x] b\n  - [ ] c\n", "- [-] b\n  - [ ] c\n", "- [/] b\n  - [ ] c\n", (1, "b", "mark")),
        ("- [ ] a ^1\n- [ ] x\n", "- [ ] b ^1\n- [ ] x\n", "- [ ] x\n", (0, "b", "text")),
        ("- [ ] a ^1\n- [ ] x\n", "- [ ] x\n", "- [ ] b ^1\n- [ ] x\n", (1, "b", "text")),
        ("- [ ] a ^1\n- [ ] x\n", "- [ ] x\n", "- [x] a ^1\n- [ ] x\n", (1, "a", "mark")),
        ("- [ ] a\n- [ ] x\n", "- [ ] a\n  - [ ] sub\n- [ ] x\n", "- [ ] x\n", (0, "sub", "text")),
        ("- [ ] a\n", "- [ ] a\n- [ ] o ^7\n", "- [ ] a\n- [ ] t ^7\n", (2, "t", "text")),
        ("- [ ] a\n\nend\n", "- [ ] a\n\nend\n- [ ] o\n", "- [ ] a\n\n```\nend\n", (0, "o", "text")),
    ],
)
def test_what_both_did_differently_is_asked_about(base: str, ours: str, theirs: str, why: tuple[int, str, str]) -> None:
    assert whys(base, ours, theirs) == [why]
    for prefer in ("ours", "theirs"):
        text(base, ours, theirs, prefer=prefer)


def test_a_preference_settles_the_conflict_and_nothing_else() -> None:
    base, ours, theirs = "p\n- [ ] a\n- [ ] b\n", "q\n- [/] a ^1\n- [ ] b\n", "r\n- [ ] a\n- [x] b\n"
    assert text(base, ours, theirs, prefer="ours") == "q\n- [/] a ^1\n- [x] b\n"
    assert text(base, ours, theirs, prefer="theirs") == "r\n- [/] a ^1\n- [x] b\n"
    base, ours, theirs = "- [ ] a\n- [ ] x\n", "- [ ] a\n  - [ ] sub\n- [ ] x\n", "- [x] x\n"
    assert text(base, ours, theirs, prefer="ours") == "- [ ] a\n  - [ ] sub\n- [x] x\n"
    assert text(base, ours, theirs, prefer="theirs") == "- [x] x\n"


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        # next to lines that both sides have changed
        ("- [ ] a\n- [ ] b\n\np\n", "- [ ] b\n\nq\n- [ ] a\n", "- [ ] a\n- [ ] b\n\nr\n"),
        # below an item that the file has removed
        (
            "- [ ] p\n- [ ] b\n- [ ] c\n- [ ] a\n",
            "- [ ] p\n  - [ ] a\n- [ ] b\n- [ ] c\n",
            "- [ ] b\n- [ ] c\n- [ ] a\n",
        ),
    ],
)
def test_an_item_that_the_run_has_moved_stays_if_its_new_place_is_not_taken(base: str, ours: str, theirs: str) -> None:
    assert text(base, ours, theirs, prefer="theirs") == theirs


@pytest.mark.parametrize(
    ("base", "theirs", "expected"),
    [
        # the words below have become the next item's
        (
            "- [/] a ^1\n\n  one\n- [ ] b\n\nend\n",
            "- [/] a ^1\n\n  one\n- [ ] b\nend\n",
            "- [/] a ^1\n\n  one\n\n  two\n- [ ] b\nend\n",
        ),
        # moved
        (
            "- [/] a ^1\n\n  one\n- [ ] b\n- [ ] c\n",
            "- [ ] b\n- [ ] c\n- [/] a ^1\n\n  one\n",
            "- [ ] b\n- [ ] c\n- [/] a ^1\n\n  one\n\n  two\n",
        ),
        (
            "- [ ] b\n- [ ] c\n- [/] a ^1\n\n  one\n  - [ ] d\n",
            "- [/] a ^1\n\n  one\n  - [ ] d\n- [ ] b\n- [ ] c\n",
            "- [/] a ^1\n\n  one\n\n  two\n  - [ ] d\n- [ ] b\n- [ ] c\n",
        ),
    ],
)
def test_a_note_of_the_run_comes_after_the_earlier_one(base: str, theirs: str, expected: str) -> None:
    assert text(base, base.replace("  one\n", "  one\n\n  two\n"), theirs) == expected


def test_conflicts_say_what_is_at_stake() -> None:
    (conflict,) = merged("- [ ] a\n", "- [x] a\n", "- [-] a\n").conflicts
    assert str(conflict) == 'line 1, "a": the run has changed it to done, the file says cancelled'
    (conflict,) = merged("- [ ] a\n", "- [ ] a\n", "nothing\n").conflicts
    assert str(conflict) == "the file has no items left; a plan without items is not a finished plan"


# Removals


@pytest.mark.parametrize("base", [DIGEST, DIGEST.replace("[/]", "[ ]"), None])
def test_removing_everything_is_asked_about(base: str | None) -> None:
    theirs = "# Digest\n\nOther words.\n"
    assert whys(base, DIGEST, theirs) == [(0, "", "everything_removed")]
    assert text(base, DIGEST, theirs, prefer="ours") == DIGEST.replace("Some", "Other")
    assert text(base, DIGEST, theirs, prefer="theirs") == theirs


def test_an_empty_plan_that_was_empty_is_no_removal() -> None:
    assert text("# T\n", "# T\n\n- [ ] a\n", "# T\n\nwords\n") == "# T\n\nwords\n\n- [ ] a\n"


def test_a_removed_item_is_not_done() -> None:
    assert text(DIGEST, DIGEST.replace("[/]", "[x]"), "- [x] Read ^1\n- [ ] Send\n") == "- [x] Read ^1\n- [ ] Send\n"


# No base


def test_a_list_written_anew_without_ids_is_taken() -> None:
    theirs = "# My plan\n\n* [x] Read\n* [x] Summarise\n* [ ] Check\n  * [ ] numbers\n* [-] Send\n"
    assert text(None, DIGEST, theirs) == theirs.replace("Read", "Read ^1").replace("Summarise", "Summarise ^2").replace(
        "Check", "Check ^3"
    )


def test_without_a_base_what_reads_as_an_untick_or_a_removal_is_asked_about() -> None:
    theirs = "- [ ] Read\n- [ ] Summarise\n- [ ] Send\n"
    assert whys(None, DIGEST, theirs) == [(0, "Check", "removal_without_base"), (1, "Read", "untick_without_base")]
    assert text(None, DIGEST, theirs, prefer="theirs") == "- [ ] Read ^1\n- [/] Summarise ^2\n- [ ] Send\n"
    assert text(None, DIGEST, theirs, prefer="ours") == ("- [x] Read ^1\n- [/] Summarise ^2\n- [ ] Check\n- [ ] Send\n")


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("- [ ] a\n- [ ] b\n- [ ] c\n", "- [ ] c\n- [ ] a\n", "- [ ] c\n- [ ] a\n- [ ] b\n"),
        (
            "- [ ] a\n  - [ ] b\n\n    note\n- [ ] c\n",
            "1. [ ] a\n2. [ ] c\n",
            "1. [ ] a\n   - [ ] b\n\n     note\n2. [ ] c\n",
        ),
        ("- [ ] a\n  - [ ] b\n- [ ] c\n", "- [ ] c\n", "- [ ] a\n  - [ ] b\n- [ ] c\n"),
        ("- [ ] a\n  - [ ] b\n- [ ] c\n", "- [ ] c\n- [x] b\n", "- [ ] a\n- [ ] c\n- [x] b\n"),
        ("- [ ] a\n- [x] b\n- [ ] c\n", "- [ ] a\n- [ ] c\n- [ ] d", "- [ ] a\n- [x] b\n- [ ] c\n- [ ] d"),
    ],
)
def test_items_are_put_back_where_they_were(ours: str, theirs: str, expected: str) -> None:
    assert {why for _, _, why in whys(None, ours, theirs)} == {"removal_without_base"}
    assert text(None, ours, theirs, prefer="ours") == expected
    assert text(None, ours, theirs, prefer="theirs") == theirs


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("- [x] p\n  - [x] a\n", "- [ ] p\n  - [x] a\n", "- [x] p\n  - [x] a\n"),
        ("- [x] p\n  - [x] a\n", "- [ ] p\n  - [x] a\n  - [ ] b\n", "- [ ] p\n  - [x] a\n  - [ ] b\n"),
        ("- [ ] p\n  - [ ] a\n", "- [ ] p\n  - [x] a\n", "- [x] p\n  - [x] a\n"),
        ("- [-] a\n- [x] b\n", "- [x] a\n- [-] b\n", "- [x] a\n- [-] b\n"),
        ("- [ ] a\n", "- [/] a\n", "- [/] a\n"),
        ("old\n\n- [ ] a\n", "- [ ] a\n", "- [ ] a\n"),
    ],
)
def test_without_a_base_what_can_be_told_is_taken(ours: str, theirs: str, expected: str) -> None:
    assert text(None, ours, theirs) == expected


# Parents


@pytest.mark.parametrize(
    ("before", "edit", "expected"),
    [
        # new work below what was finished
        ("- [x] p\n  - [x] a\n", "- [x] p\n  - [x] a\n  - [ ] b\n", "- [ ] p\n  - [x] a\n  - [ ] b\n"),
        ("- [x] p\n  - [x] a\n", "- [x] p\n  - [/] a\n", "- [ ] p\n  - [/] a\n"),
        ("- [x] p\n  - [x] a\n- [ ] b\n", "- [x] p\n  - [x] a\n  - [ ] b\n", "- [ ] p\n  - [x] a\n  - [ ] b\n"),
        ("- [x] a\n", "- [x] a\n  - [ ] b\n", "- [ ] a\n  - [ ] b\n"),
        # finished by this edit
        ("- [ ] p\n  - [ ] a\n", "- [x] p\n  - [ ] a\n  - [ ] b\n", "- [x] p\n  - [ ] a\n  - [ ] b\n"),
        ("- [-] p\n  - [-] a\n", "- [x] p\n  - [ ] a\n", "- [x] p\n  - [ ] a\n"),
        ("", "- [-] p\n  - [ ] a\n", "- [-] p\n  - [ ] a\n"),
        # skipped before, and nothing to do with this edit
        ("- [x] p\n  - [ ] a\n- [ ] b\n", "- [x] p\n  - [ ] a\n- [x] b\n", "- [x] p\n  - [ ] a\n- [x] b\n"),
        # to be done again
        ("- [x] p\n  - [x] a\n  - [-] b\n", "- [ ] p\n  - [x] a\n  - [-] b\n", "- [ ] p\n  - [ ] a\n  - [-] b\n"),
        ("- [x] p\n  - [x] q\n    - [x] a\n", "- [/] p\n  - [x] q\n    - [x] a\n", "- [/] p\n  - [ ] q\n    - [ ] a\n"),
        ("- [x] p\n  - [x] a\n  - [x] b\n", "- [ ] p\n  - [ ] a\n  - [x] b\n", "- [ ] p\n  - [ ] a\n  - [x] b\n"),
        ("- [x] g\n  - [x] p\n    - [x] a\n", "- [x] g\n  - [ ] p\n    - [x] a\n", "- [ ] g\n  - [ ] p\n    - [ ] a\n"),
        # all done
        ("- [ ] p\n  - [ ] a\n  - [x] b\n", "- [ ] p\n  - [x] a\n  - [x] b\n", "- [x] p\n  - [x] a\n  - [x] b\n"),
        ("- [ ] p\n  - [ ] a\n", "- [ ] p\n  - [-] a\n", "- [-] p\n  - [-] a\n"),
        ("- [ ] p\n  - [ ] a\n  - [x] b\n", "- [ ] p\n  - [x] b\n", "- [x] p\n  - [x] b\n"),
        ("- [ ] g\n  - [ ] p\n    - [/] a\n", "- [ ] g\n  - [/] p\n    - [x] a\n", "- [x] g\n  - [x] p\n    - [x] a\n"),
        (
            "- [x] p\n  - [x] a\n",
            "- [x] p\n  - [x] a\n  - [ ] q\n    - [x] b\n",
            "- [x] p\n  - [x] a\n  - [x] q\n    - [x] b\n",
        ),
        # as written
        ("- [ ] p\n  - [ ] a\n", "- [/] p\n  - [/] a\n", "- [/] p\n  - [/] a\n"),
        ("- [-] p\n  - [-] a\n", "- [ ] p\n  - [-] a\n", "- [ ] p\n  - [-] a\n"),
    ],
)
def test_parents_are_settled(before: str, edit: str, expected: str) -> None:
    plan = Plan(edit)
    splices = settle(Plan(before), plan)
    assert plan.text == expected
    replayed = Plan(edit)
    replayed.apply(splices)
    assert replayed.text == expected
    assert settle(Plan(expected), Plan(expected)) == []
    assert text(before, before, edit) == expected


# What an edit did


def test_changes_are_told_by_identity() -> None:
    before = Plan("p\n- [ ] a\n- [x] b\n- [/] c ^1\n- [x] d ^2\n- [-] e\n- [ ] f\n- [ ] g ^3\n")
    after = Plan("q\n- [x] a\n- [ ] b\n- [ ] c\n- [-] D ^2\n- [x] e\n- [ ] new\n- [ ] g\n")
    found = changes(before, after)

    def words(pairs: tuple[Pair, ...]) -> list[str]:
        return [pair.after.text for pair in pairs]

    assert words(found.ticked) == ["a"]
    assert words(found.unticked) == ["b"]
    assert words(found.restarted) == ["c"]
    assert words(found.cancelled) == words(found.reworded) == ["D"]
    assert words(found.revived) == ["e"]
    assert [task.text for task in found.removed] == ["f"]
    assert [task.text for task in found.added] == ["new"]
    assert (found.moved, found.prose) == (False, True)


@pytest.mark.parametrize(
    ("before", "after", "moved", "prose"),
    [
        ("- [ ] a\n- [ ] b\n", "- [ ] b\n- [ ] a\n", True, False),
        ("- [ ] a\n- [ ] b\n", "- [ ] a\n  - [ ] b\n", False, False),
        ("- [ ] a\n- [ ] b\n- [ ] c\n", "- [ ] b\n- [ ] a\n  - [ ] c\n", True, False),
        ("- [ ] a\n- [ ] b\n", "- [ ] new\n\n- [ ] b\n", False, False),
        ("- [ ] a\n  - [ ] b\n", "- [ ] b\n", False, False),
        ("- [ ] a\n  - [ ] b\n", "- [ ] a\n  - [ ] n\n    - [ ] b\n", False, False),
        ("- [ ] a\n\n  note\n", "- [ ] a\r\n\r\n  note", False, False),
        ("- [ ] a\n\n  note\n", "- [ ] a\n", False, True),
        ("- [ ] a\n  b\n", "- [ ] a b\n", False, False),
    ],
)
def test_order_and_prose_are_compared_without_what_came_or_went(
    before: str, after: str, moved: bool, prose: bool
) -> None:
    found = changes(Plan(before), Plan(after))
    assert (found.moved, found.prose) == (moved, prose)


@pytest.mark.parametrize(
    ("before", "after", "nested"),
    [
        ("- [ ] a\n- [ ] b\n", "- [ ] a\n  - [ ] b\n", [("b", None, "a")]),
        ("- [ ] a\n  - [ ] b\n", "- [ ] a\n- [ ] b\n", [("b", "a", None)]),
        ("- [ ] a\n  - [ ] b\n- [ ] c\n", "- [ ] a\n- [ ] c\n  - [ ] b\n", [("b", "a", "c")]),
        ("- [ ] a\n- [ ] b\n", "- [ ] n\n  - [ ] a\n- [ ] b\n", [("a", None, "n")]),
        ("- [ ] a\n  - [ ] b\n- [ ] c\n", "- [ ] c\n  - [ ] b\n", [("b", None, "c")]),
        ("- [ ] a\n- [ ] b\n  - [ ] c\n", "- [ ] a\n  - [ ] b\n    - [ ] c\n", [("b", None, "a")]),
        ("- [ ] a\n  - [ ] b\n", "- [ ] b\n", []),
        ("- [ ] a\n- [ ] b\n", "- [ ] b\n- [ ] a\n", []),
    ],
)
def test_an_item_is_told_by_what_it_was_and_is_now_under(
    before: str, after: str, nested: list[tuple[str, str | None, str | None]]
) -> None:
    found = changes(Plan(before), Plan(after)).nested
    assert [(item.text, a and a.text, b and b.text) for item, a, b in found] == nested


@pytest.mark.parametrize(
    ("ours", "theirs", "own"),
    [
        ("- [ ] a\n- [ ] b\n", "- [ ] a\n  - [ ] b\n", {"1"}),
        ("- [/] a ^A\n- [ ] b\n", "- [/] a ^A\n  - [ ] b\n", {"a"}),
        ("- [ ] a\n", "- [ ] a\n  - [ ] new\n", {"1"}),
        ("- [ ] a\n- [ ] b\n- [ ] c\n", "- [ ] a\n  - [ ] b\n    - [ ] c\n", {"1", "2"}),
        ("- [x] a ^1\n- [ ] b\n", "- [ ] a ^1\n  - [ ] b\n", {"1"}),  # it is to be done again
        ("- [x] a ^1\n- [ ] b\n", "- [x] a ^1\n  - [ ] b\n", set()),  # it was done
        ("- [ ] a\n- [ ] b\n", "- [x] a\n  - [ ] b\n", set()),  # a person says so
        ("- [ ] a\n  - [ ] b\n- [ ] c\n", "- [ ] a\n  - [ ] b\n  - [ ] c\n", set()),  # it is a heading
        ("- [ ] a\n", "- [ ] new\n  - [ ] a\n", set()),
    ],
)
@pytest.mark.parametrize("has_base", [True, False])
def test_work_that_gets_items_below_it_becomes_a_heading(ours: str, theirs: str, own: set[str], has_base: bool) -> None:
    found = merge_plans(Plan(ours) if has_base else None, Plan(ours), Plan(theirs), prefer="theirs").plan
    assert found.own_work == own
    assert {task.id for task in found.tasks if task.is_work and task.children} == {id.upper() for id in own}


def test_work_with_items_below_it_is_done_last() -> None:
    plan = Plan("- [ ] a ^a\n  - [ ] b\n  - [ ] c\n- [ ] d\n", {"a"})
    assert [task.text for task in plan.to_do()] == ["b", "c", "a", "d"] and plan.progress == (0, 4)
    assert plan.is_to_do("a") and not plan.is_ready("a")
    done = []
    while (task := plan.next_to_do()) is not None:
        done.append(task.text)
        plan.begin(task, 0)
        plan.tick(task)
    assert done == ["b", "c", "a", "d"] and plan.progress == (4, 4)
    plan.reopen(plan.tasks[0])
    assert plan.is_ready("a"), "only its own work is done again"


def test_no_change_is_falsy() -> None:
    assert not changes(Plan(DIGEST), Plan(DIGEST))
    assert changes(Plan(DIGEST), Plan(DIGEST + "more\n"))
    assert isinstance(changes(Plan(), Plan()), Changes)


# Splices


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("", "a"),
        ("a", ""),
        ("a", "a\n"),
        ("a", "a\nb"),
        ("a\nb\nc\n", "a\nc\n"),
        ("a\ra\n", "a\r\na\n"),
        ("a\n\n\nb\n", "a\n\nb\n"),
        ("a\r", "a\r\n"),
        ("x\n", "y\nx\n"),
        ("a\r\nb", "a\nb"),
    ],
)
def test_a_splice_between_two_texts_makes_the_one_of_the_other(old: str, new: str) -> None:
    lines = split(old)
    splices = between(lines, split(new))
    assert len(splices) <= 1 and (not splices) == (old == new)
    for splice in splices:
        apply(lines, splice)
    assert "".join(lines) == new


# Size


@pytest.mark.parametrize("base", [True, False])
def test_merging_many_items_takes_the_square_of_their_number(base: bool) -> None:
    def of(count: int) -> Callable[[], object]:
        def items(marks: str, words: str = "item") -> list[str]:
            return [f"- [{marks[number % len(marks)]}] {words} {number}\n\n  note\n\n" for number in range(count)]

        old = "".join(items(" "))
        ours = items(" /")
        ours[count // 2] += "- [ ] ours\n\n"
        theirs = [*reversed(items(" ")[: count // 2]), *items(" x")[count // 2 :], "- [ ] theirs\n"]
        plans = [Plan(text) for text in (old, "".join(ours), "".join(theirs))]
        assert all(plan.tasks for plan in plans)

        def merge() -> None:
            found = merge_plans(plans[0] if base else None, plans[1], plans[2], prefer="ours")
            assert len(found.plan) == count + 2
            assert changes(plans[1], found.plan).added

        return merge

    growth.stays_linear(of, 50)


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "sides"),
    [
        ("- [ ] a ^1\n", "- [x] a ^1\n", "- [-] a ^1\n", [("- [ ] a ^1", "- [x] a ^1", "- [-] a ^1")]),
        ("- [ ] a ^1\n- [ ] b ^2\n", "- [ ] b ^2\n", "- [-] a ^1\n- [ ] b ^2\n", [("- [ ] a ^1", None, "- [-] a ^1")]),
        (None, "- [x] a ^1\n- [ ] b ^2\n", "- [ ] b ^2\n", [(None, "- [x] a ^1", None)]),
        ("# P\n\nold\n\n- [ ] a\n", "# P\n\nours\n\n- [ ] a\n", "# P\n\nits\n\n- [ ] a\n", [("old", "ours", "its")]),
        ("- [ ] a ^1\n", "- [x] a ^1\n- [ ] b ^2\n", "gone\n", [("- [ ] a ^1", "- [x] a ^1\n- [ ] b ^2", None)]),
    ],
    ids=["marks", "removed", "no base", "text", "everything"],
)
def test_a_conflict_does_not_say_what_each_version_has_there(
    base: str | None, ours: str, theirs: str, sides: list[tuple[str | None, str | None, str | None]]
) -> None:
    before = None if base is None else Plan(base)
    found = merged(base, ours, theirs).conflicts
    assert [*conflict_sides(found, before, Plan(ours), Plan(theirs))] == sides
