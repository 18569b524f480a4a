"""The plan, rule by rule. What holds for any text is in test_todo_properties.py."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import growth
import pytest

from satchel.workspace.base.errors import UsageError
from satchel.workspace.plan import Plan, Splice, Task, markdown, plainly


def texts(plan: Plan) -> list[str]:
    return [task.text for task in plan.tasks]


def find(plan: Plan, text: str) -> Task:
    return next(task for task in plan.tasks if task.text == text)


def count_parses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are parsed from now on."""
    seen: list[str] = []
    real = markdown.parse

    def counting(lines: list[str]) -> markdown.Parsed:
        seen.append("".join(lines))
        return real(lines)

    monkeypatch.setattr("satchel.workspace.plan.plan.parse", counting)
    return seen


# What is a task


@pytest.mark.parametrize(
    "text",
    [
        "- [ ] a",
        "* [ ] a\n",
        "+ [ ] a\n",
        "1. [ ] a\n",
        "1) [ ] a\n",
        "   - [ ] a\n",
        "- plain\n  - [ ] a\n",
        "> - [ ] a\n",
        "> 1. - [ ] a\n",
        "-\t[ ] a\n",
        "- [ ]\ta\n",
        "\ufeff- [ ] a\n",
        "text\n- [ ] a\n",
        "<!-- x -->\n- [ ] a\n",
        "```\n```\n- [ ] a\n",
        "- [ ] a\r",
        "\x0c\n\n- [ ] a\n",
        "x\u2028- [ ] b\n\n- [ ] a\n",
    ],
)
def test_a_task_is_found_wherever_markdown_has_one(text: str) -> None:
    assert texts(Plan(text)) == ["a"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[ ] a\n",
        "```\n- [ ] a\n```\n",
        "~~~\n- [ ] a\n",
        "    - [ ] a\n",
        "<!--\n- [ ] a\n-->\n",
        "<div>\n- [ ] a\n</div>\n",
        "- [x](a)\n",
        "- [x]a\n",
        "- [?] a\n",
        "- [] a\n",
        "-      [ ] a\n",
        "- # [ ] a\n",
        "- > [ ] a\n",
        "- \\[ ] a\n",
        "-[ ] a\n",
        "- `[ ] a`\n",
        "- a\n  [ ] b\n",
        "- \u00a0[ ] a\n",
        "x\u2028- [ ] b\n",
        "- [ ] a\n  ---\n",
        "a\n2. [ ] b\n",
    ],
)
def test_what_only_looks_like_a_task_is_prose(text: str) -> None:
    plan = Plan(text)
    assert plan.tasks == ()
    assert plan.next_to_do() is None


def test_each_mark_is_known() -> None:
    plan = Plan("- [ ] a\n- [x] b\n- [X] c\n- [-] d\n- [/] e\n- [ ]\n")
    assert [task.mark for task in plan.tasks] == ["open", "done", "done", "cancelled", "begun", "open"]
    assert plan.tasks[-1].text == ""


@pytest.mark.parametrize(
    ("line", "id", "text"),
    [
        ("a ^3", "3", "a"),
        ("a ^set-up_1  ", "set-up_1", "a"),
        ("^3", "3", ""),
        ("a ^3 ^4", "4", "a ^3"),
        ("a^3", None, "a^3"),
        ("a ^3.", None, "a ^3."),
        ("a ^-x", None, "a ^-x"),
        ("a \\^3", None, "a ^3"),
        ("a \\^3 ^4", "4", "a ^3"),
        ("a \\\\^3", None, "a \\^3"),
        ("x^2 ^n", "n", "x^2"),
        ("a ^" + "x" * 41, None, "a ^" + "x" * 41),
    ],
)
def test_only_the_last_trailing_word_is_the_id(line: str, id: str | None, text: str) -> None:
    (task,) = Plan(f"- [ ] {line}\n").tasks
    assert (task.id, task.text) == (id, text)


def test_the_text_is_the_whole_first_paragraph_and_no_more() -> None:
    plan = Plan("> - [ ] one ^1  \n>   two\r\nlazy\n>\n>   more\n>   - [ ] sub\n")
    assert [(task.id, task.text) for task in plan.tasks] == [("1", "one two lazy"), (None, "sub")]


def test_parents_are_the_tasks_around_even_through_plain_items() -> None:
    plan = Plan("- [ ] a\n  - plain\n    - [ ] b\n  - [ ] c\n- plain\n  - [ ] d\n")
    assert [(task.text, task.parent, task.children, task.is_leaf) for task in plan.tasks] == [
        ("a", None, (1, 2), False),
        ("b", 0, (), True),
        ("c", 0, (), True),
        ("d", None, (), True),
    ]


def test_an_id_is_found_in_any_case_and_the_first_of_two_wins() -> None:
    plan = Plan("- [ ] a ^Up\n- [ ] b ^up\n")
    found = plan.task("UP")
    assert found is not None and found.text == "a"
    assert plan.task("nowhere") is None


# What is next


def test_the_next_leaf_is_below_nothing_finished() -> None:
    plan = Plan("- [x] a\n  - [ ] b\n- [-] c\n  - d\n    - [/] e\n- [ ] f\n  - [/] g ^G\n  - [ ] h\n")
    leaf = plan.next_to_do()
    assert leaf is not None and leaf.text == "g"
    leaf = plan.next_to_do(skip=["g"])
    assert leaf is not None and leaf.text == "h"
    assert plan.progress == (1, 3) and plan.dropped == 1


def test_the_tasks_of_two_readings_differ_though_their_text_is_the_same() -> None:
    before, after = (Plan("- [ ] a\n").tasks[0] for _ in range(2))
    assert before.revision != after.revision
    assert before == after and (before != after) is False and hash(before) == hash(after)
    done = Plan("- [x] a\n").tasks[0]
    assert before != done


def test_a_leaf_that_is_reopened_comes_again() -> None:
    plan = Plan("- [ ] a\n- [ ] b\n")
    first = plan.tasks[0]
    plan.tick(first)
    assert plan.next_to_do() == plan.tasks[1]
    plan.reopen(first)
    assert plan.next_to_do() == plan.tasks[0]


# Marks


def test_a_parent_is_ticked_with_its_last_leaf() -> None:
    plan = Plan("- [ ] a\n  - [ ] b\n    - [ ] c\n    - [-] d\n  - [x] e\n- [ ] f\n")
    assert plan.tick(find(plan, "c")) == [
        Splice(2, 1, "    - [x] c\n"),
        Splice(1, 1, "  - [x] b\n"),
        Splice(0, 1, "- [x] a\n"),
    ]


def test_a_parent_of_cancelled_items_only_is_cancelled() -> None:
    plan = Plan("- [ ] a\n  - [-] b\n  - [ ] c\n")
    plan.cancel(find(plan, "c"))
    assert plan.text == "- [-] a\n  - [-] b\n  - [-] c\n"


def test_a_parent_waits_for_its_unfinished_leaf() -> None:
    plan = Plan("- [ ] a\n  - [ ] b\n  - [/] c\n")
    plan.tick(find(plan, "b"))
    assert plan.text == "- [ ] a\n  - [x] b\n  - [/] c\n"


def test_cancelling_a_parent_spares_what_is_done() -> None:
    plan = Plan("- [ ] a\n  - [x] b\n  - [/] c ^1\n  - [ ] d\n- [ ] e\n")
    plan.cancel(find(plan, "a"))
    assert plan.text == "- [-] a\n  - [x] b\n  - [-] c ^1\n  - [-] d\n- [ ] e\n"


def test_a_reopened_item_is_not_left_below_a_finished_one() -> None:
    plan = Plan("- [x] a\n  - [x] b\n  - [x] c\n")
    plan.reopen(find(plan, "b"))
    assert plan.text == "- [ ] a\n  - [ ] b\n  - [x] c\n"
    leaf = plan.next_to_do()
    assert leaf is not None and leaf.text == "b"


def test_a_capital_x_stays_as_it_was_written() -> None:
    plan = Plan("- [X] a\n")
    assert plan.tick(plan.tasks[0]) == []


# Ids


def test_a_new_id_is_above_all_that_were_ever_given() -> None:
    plan = Plan("- [ ] a\n- [x] b ^12\n- [ ] c ^word\n")
    assert plan.begin(plan.tasks[0], 3) == [Splice(0, 1, "- [/] a ^13\n")]
    assert plan.begin(plan.tasks[2], 3) == [Splice(2, 1, "- [/] c ^word\n")]
    plan = Plan("- [ ] a ^99999999999999999999999999999999\n- [ ] b\n")
    assert plan.begin(plan.tasks[1], 20) == [Splice(1, 1, "- [/] b ^21\n")]


def test_an_id_stands_before_a_line_break_and_the_line_ending() -> None:
    plan = Plan("- [ ] a  \r\n  b\r\n- [ ] c")
    plan.begin(plan.tasks[0], 0)
    plan.begin(plan.tasks[1], 0)
    assert plan.text == "- [/] a ^1  \r\n  b\r\n- [/] c ^2"


def test_items_that_read_the_same_are_told_apart() -> None:
    plan = Plan("- [ ] a\n- [ ] b\n- [x] a\n- [/] a\n- [ ] a ^x\n")
    plan.identify(4)
    assert plan.text == "- [ ] a ^5\n- [ ] b\n- [x] a\n- [/] a ^6\n- [ ] a ^x\n"


def test_a_task_read_before_the_lines_moved_is_refused_unless_it_has_an_id() -> None:
    plan = Plan("- [ ] a\n- [ ] a ^1\n")
    first, second = plan.tasks
    plan.add(["a"], after=first)
    with pytest.raises(UsageError, match="'a' is not known in this plan"):
        plan.tick(first)
    plan.tick(second)
    assert plan.text == "- [ ] a\n- [ ] a\n- [x] a ^1\n"
    with pytest.raises(UsageError):
        Plan(plan.text).tick(plan.tasks[0])


# Notes


@pytest.mark.parametrize(
    ("text", "note", "expected"),
    [
        ("- [ ] a\n- [ ] b\n", "done by hand", "- [ ] a\n\n  done by hand\n- [ ] b\n"),
        ("- [ ] a", "- [ ] x", "- [ ] a\n\n  \\- [ ] x\n"),
        ("1. [ ] a\r\n   - [ ] b\r\n", "x\n\n1. y", "1. [ ] a\r\n\r\n   x\r\n\r\n   1\\. y\r\n   - [ ] b\r\n"),
        ("> - [ ] a\n> - [ ] b\n", "# x", "> - [ ] a\n>\n>   \\# x\n> - [ ] b\n"),
        ("- [ ] a\n  ```\n  code", "x", "- [ ] a\n\n  x\n  ```\n  code"),
        ("- [ ] a\n", "  \n ", "- [ ] a\n"),
    ],
)
def test_a_note_is_a_paragraph_of_the_item(text: str, note: str, expected: str) -> None:
    plan = Plan(text)
    plan.note(plan.tasks[0], note)
    assert plan.text == expected
    assert texts(plan) == texts(Plan(text))


def test_notes_stand_in_the_order_they_came() -> None:
    plan = Plan("- [ ] a ^1\n")
    plan.note(plan.tasks[0], "first")
    plan.note(plan.tasks[0], "second")
    assert plan.text == "- [ ] a ^1\n\n  first\n\n  second\n"


# New items


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "- [ ] n\n"),
        ("prose", "prose\n\n- [ ] n\n"),
        ("* [x] a", "* [x] a\n* [ ] n\n"),
        ("1. [x] a\n2. [ ] b\n\ntext\n", "1. [x] a\n2. [ ] b\n3. [ ] n\n\ntext\n"),
        ("1. [x] a\n1. [ ] b\n", "1. [x] a\n1. [ ] b\n1. [ ] n\n"),
        ("9) [x] a\r\n", "9) [x] a\r\n10) [ ] n\r\n"),
        ("- [ ] a\n\n- [ ] b\n", "- [ ] a\n\n- [ ] b\n\n- [ ] n\n"),
        ("- [ ] a\nlazy\n", "- [ ] a\nlazy\n- [ ] n\n"),
        ("- [ ] a\n  ```\n  - [ ] no\n", "- [ ] a\n  ```\n  - [ ] no\n- [ ] n\n"),
        ("- [ ] a\n  ```\n  x\n  ```\ntext\n", "- [ ] a\n  ```\n  x\n  ```\n- [ ] n\n\ntext\n"),
        ("- [ ] a\n  - [ ] b\n# H\n", "- [ ] a\n  - [ ] b\n- [ ] n\n# H\n"),
        ("> - [ ] a\n", "> - [ ] a\n\n- [ ] n\n"),
        ("- [ ] a\r- [ ] b", "- [ ] a\r- [ ] b\r- [ ] n\r"),
        ("# A\n- [ ] a\n\n# B\n\n- [ ] b\n", "# A\n- [ ] a\n\n# B\n\n- [ ] b\n- [ ] n\n"),
    ],
)
def test_a_new_item_follows_the_last_one_at_the_top(text: str, expected: str) -> None:
    plan = Plan(text)
    plan.add(["n"])
    assert plan.text == expected


def test_new_items_after_and_under_a_task() -> None:
    plan = Plan("1. [ ] a ^a\n   - [ ] b ^b\n2. [ ] c ^c\n")
    plan.add(["n", "m"], after=plan.tasks[0])
    assert plan.text == "1. [ ] a ^a\n   - [ ] b ^b\n2. [ ] n\n3. [ ] m\n2. [ ] c ^c\n"
    plan.add(["u"], under=plan.task("a"))
    plan.add(["v", "w"], under=plan.task("c"))
    assert plan.text == (
        "1. [ ] a ^a\n   - [ ] b ^b\n   - [ ] u\n2. [ ] n\n3. [ ] m\n2. [ ] c ^c\n   1. [ ] v\n   2. [ ] w\n"
    )


def test_a_new_item_reopens_what_is_finished_around_it() -> None:
    plan = Plan("- [x] a\n  - [-] b\n")
    plan.add(["n"], under=plan.tasks[1])
    assert plan.text == "- [ ] a\n  - [ ] b\n    - [ ] n\n"


@pytest.mark.parametrize(
    "text", ["a ^b", "^b", "a \\^b", "a \\\\^b", "a  b", "- [ ] x", "[x] y", "# h", "a\\", "a\x0bb", "|"]
)
def test_the_text_of_a_new_item_reads_back_as_given(text: str) -> None:
    plan = Plan()
    plan.add([text])
    assert (plan.tasks[0].text, plan.tasks[0].id) == (text, None)
    plan.begin(plan.tasks[0], 0)
    assert (plan.tasks[0].text, plan.tasks[0].id) == (text, "1")


def test_lines_of_a_new_item_become_one() -> None:
    plan = Plan()
    plan.add([" a\r\n\n  - [ ] b\r"])
    assert texts(plan) == ["a - [ ] b"]


@pytest.mark.parametrize("text", ["", " \n\t", "\ud800"])
def test_an_item_that_cannot_be_written_is_refused(text: str) -> None:
    plan = Plan("- [ ] a\n")
    with pytest.raises(UsageError):
        plan.add(["fine", text])
    assert plan.text == "- [ ] a\n"


def test_an_open_code_fence_does_not_swallow_a_new_item() -> None:
    plan = Plan("```\ncode\n")
    with pytest.raises(UsageError, match="no place in the plan"):
        plan.add(["n"])
    assert plan.text == "```\ncode\n"


def test_two_places_for_an_item_are_refused() -> None:
    plan = Plan("- [ ] a\n")
    with pytest.raises(UsageError, match="two places"):
        plan.add(["n"], after=plan.tasks[0], under=plan.tasks[0])
    assert plan.add([]) == []


@pytest.mark.parametrize(
    ("text", "title", "expected"),
    [
        ("", "Digest", "# Digest\n\n- [ ] a\n- [ ] b\n"),
        ("", None, "- [ ] a\n- [ ] b\n"),
        ("Some\r\nprose", "Digest", "Some\r\nprose\r\n\r\n# Digest\r\n\r\n- [ ] a\r\n- [ ] b\r\n"),
        ("- [x] old\n\n", "Two\nlines", "- [x] old\n\n# Two lines\n\n- [ ] a\n- [ ] b\n"),
    ],
)
def test_a_plan_is_written_below_what_there_is(text: str, title: str | None, expected: str) -> None:
    plan = Plan(text)
    plan.write(title, ["a", "b"])
    assert plan.text == expected
    with pytest.raises(UsageError, match="no items"):
        plan.write("Empty", [])


# Looking


def test_what_remains_has_no_finished_items() -> None:
    plan = Plan(
        "# A\n\n- [x] done ^1\n\n  note of it\n  - [ ] settled by it\n- [/] begun ^2\n  - [-] dropped\n  - [ ] left\n\n"
        "    its note\n\n# B\n\n- [x] all\n\ntext\n"
    )
    assert plan.remaining() == "# A\n\n- [/] begun ^2\n  - [ ] left\n\n    its note\n\n# B\n\ntext\n"


TAKEN = {
    "-\u00a0[ ] New": "- [ ] New",
    "\u00a0- [ ] New": " - [ ] New",
    "\ufeff- [ ] New": "- [ ] New",
    "-\ufeff[ ] New": "- [ ] New",
    "- \ufeff[ ] New": "- [ ] New",
    "-\u2007[x] New": "- [x] New",
    "\u200b-\u202f[ ]\u00a0New": "- [ ] New",
    "\u3000* [ ] New": "  * [ ] New",
    "- [\u00a0] New": "- [ ] New",
    "- [\u200b ] New": "- [ ] New",
    "- [ ]\u3000New": "- [ ] New",
    "- ［ ］ New": "- [ ] New",
    "-［x］New": "- [x] New",
    "1.\u3000［　］　New": "1. [ ] New",
    "1.[ ] New": "1. [ ] New",
    "12)[/]\tNew": "12) [/]\tNew",
    "> -\u00a0[ ] New": "> - [ ] New",
    "- [ ]\u00a0": "- [ ] ",
}
"""What is no item to Markdown, by an invisible slip, and how it is taken."""


@pytest.mark.parametrize("typed", TAKEN)
@pytest.mark.parametrize("above", ["Prose:\n\n", "- [ ] a\n", "- [ ] a\n  - [ ] b\n"])
def test_what_is_plainly_meant_as_an_item_is_none(typed: str, above: str) -> None:
    text = f"{above}{typed}\r\n\u00a0 and\u00a0more\n"
    taken = plainly(text)
    assert taken == f"{above}{TAKEN[typed]}\r\n\u00a0 and\u00a0more\n", "something else was changed"
    assert not Plan(taken).problems() and len(Plan(taken).tasks) == above.count("[") + 1
    assert plainly(taken) == taken


@pytest.mark.parametrize(
    "text",
    [
        "```\n-\u00a0[ ] New\n1.[ ] New\n```\n",
        "    -\u00a0[ ] New\n",
        "<pre>\n1.[ ] New\n</pre>\n",
        "# 1.[ ] New\n",
        "1.\\[ ] New\n",
        "1.[x](u)\n",
        "\ufeff- [ ] a\n",
        "- [ ] a\u00a0b\n\u00a0c\n",
        "\u00a0\u00a0- text\n",
        "- ［注］ a note\n",
        "１.５\u00a0[ ] a\n",
    ],
)
def test_what_is_no_item_is_taken_for_one(text: str) -> None:
    assert plainly(text) == text and not Plan(text).problems()


REFUSED = {
    "‐ [ ] New": "- [ ] New",
    "－ [ ] New": "- [ ] New",
    "－［　］　New": "- [ ] New",
    "・[ ] New": "- [ ] New",
    "∙ [/] New": "- [/] New",
    "(1) [ ] New": "1. [ ] New",
    "（１２）[x]\u00a0New": "12. [x] New",
    "３．[ ] New": "3. [ ] New",
    "2: [ ] New": "2. [ ] New",
    "b) [ ] New": "- [ ] New",
    "1.[ ]New": "1. [ ] New",
    "□ New": "- [ ] New",
    "⬜ New": "- [ ] New",
    "- ☑\ufe0f New": "- [x] New",
    "- 【 】 New": "- [ ] New",
    "【x】New": "- [x] New",
    "［ ］ New": "- [ ] New",
    "-［］New": "- [ ] New",
    "-     [ ] New": "- [ ] New",
    "1.\t\t[x] New": "1. [x] New",
    "          - [ ] New": "- [ ] New",
}


@pytest.mark.parametrize("typed", REFUSED)
def test_a_line_that_looks_like_an_item_is_text_or_vanishes(typed: str) -> None:
    text = f"- [ ] a\n{typed}\n"
    (problem,) = Plan(plainly(text)).problems()
    shown = typed if typed.strip() == REFUSED[typed] else typed.strip()
    assert (problem.place, problem.found) == ("line 2", f'"{shown}", which looks like an item but is text')
    assert problem.expected == f'"{REFUSED[typed]}"'
    mended = Plan(f"- [ ] a\n{REFUSED[typed]}\n")
    assert not mended.problems() and mended.tasks[1].text == "New", "the corrected line is none either"


def test_the_page_says_what_is_taken_and_refused() -> None:
    page = (Path(__file__).parents[3] / "docs/folder.md").read_text()
    taken, refused = (
        page[page.index(start) :].partition("\n\n")[0] for start in ("An item may", "Satchel refuses any")
    )
    assert "- ［x］ New" in taken and plainly("- ［x］ New") == "- [x] New"
    samples = [sample.replace("\n", " ") for sample in re.findall("`([^`]+)`", refused)]
    assert samples.pop() == "- New" and len(samples) == 11
    for sample in samples:
        assert Plan(plainly(f"- [ ] a\n{sample}\n")).problems(), sample


@pytest.mark.parametrize(
    ("text", "place", "found"),
    [
        ("- [ ] a ^Up\n\n- [ ] b ^up\n", "line 3", "the id ^up, which line 1 has already"),
        ("- [?] a\n", "line 1", 'the mark "[?]"'),
        ("- [] a\n", "line 1", 'the mark "[]"'),
        ("- [ x] a\n", "line 1", 'the mark "[ x]"'),
        ("- [ ] a\n- [x]b\n", "line 2", '"[x]" without a space after it'),
        ("- " * 30 + "[ ] a\n", "line 1", "more than 40 nested lists and quotes"),
        ("- [ ] a\n-[ ] New\n", "line 2", '"-[ ] New", which looks like an item but is text'),
        ("- [ ] a\n  – [ ] New\n", "line 2", '"– [ ] New", which looks like an item but is text'),
        ("- [ ] a\n• [x] New\n", "line 2", '"• [x] New", which looks like an item but is text'),
        ("•[ ]New\n", "line 1", '"•[ ]New", which looks like an item but is text'),
        ("- [ ] a\n[ ] New\n", "line 2", '"[ ] New", which looks like an item but is text'),
        ("- [ ] a\n- ☐ New\n", "line 2", '"- ☐ New", which looks like an item but is text'),
        ("- [ ] a\n  milestone: yes\n", "line 2", '"milestone: yes", which makes no milestone'),
        ("- [ ] a\n  - Milestones = true\n", "line 2", '"- Milestones = true", which makes no milestone'),
        ("> - [ ] a\n>\n>   milestone\n", "line 3", '"milestone", which makes no milestone'),
        ("☑ New\n", "line 1", '"☑ New", which looks like an item but is text'),
        ("> - [ ] a\n> -[ ] New\n", "line 2", '"> -[ ] New", which looks like an item but is text'),
    ],
)
def test_a_slip_is_reported_where_it_is(text: str, place: str, found: str) -> None:
    (problem,) = Plan(text).problems()
    assert (problem.place, problem.found) == (place, found)
    assert problem.expected and problem.remedy
    plan = Plan(text)
    assert Plan.restore(text, plan.outline()).problems() == [problem]


@pytest.mark.parametrize(
    "text",
    [
        "- [x](u)\n",
        "- [x][u]\n",
        "- [x]: u\n",
        "- [1] Author, Title\n",
        "- [link] a\n",
        "[?] a\n",
        "- `[?]`\n",
        "-[x](u)\n",
        "*[x]* a\n",
        "1. [x](u)\n",
        "(1) see [x] below\n",
        "3 [x] are left\n",
        "- 【重要】 a\n",
        "- (x) a\n",
        "・買う\n",
        "✅ All tests pass\n",
        "a) first [ ] then\n",
        "- [ ] a\n-\\[ ] New\n",
        "```\n-[ ] New\n```\n",
        "# -[ ] New\n",
        "- a ☐ b\n",
        "[x](u) [ ] a\n",
        "\\[ ] New\n",
        "[ ]\n",
        "- [ ] a\n  milestone: true\n",
        "- [ ] a\n  Milestone: Q3\n",
        "milestone: yes\n",
    ],
)
def test_links_and_references_are_no_slips(text: str) -> None:
    assert Plan(text).problems() == []


def test_a_list_item_without_a_checkbox_is_an_item_or_is_kept_quiet_about() -> None:
    plan = Plan("- a\n- b\n\n1. c\n\n# Items\n\n- [ ] d\n- New\n  - note of it\n- [ ] e\n  - note\n- \\[ ] text\n")
    assert plan.without_checkbox() == {"- New": 9}
    assert [task.text for task in plan.tasks] == ["d", "e"]


# Splices and outlines


def test_a_splice_that_does_not_fit_is_refused() -> None:
    plan = Plan("a\n")
    for splice in (Splice(2, 0, "x\n"), Splice(-1, 1, ""), Splice(0, 2, ""), Splice(0, -1, "")):
        with pytest.raises(UsageError, match="does not fit"):
            plan.apply([splice])
    assert plan.text == "a\n"


def test_a_splice_that_fuses_two_line_endings_keeps_lines_true() -> None:
    plan = Plan("a\rb\n")
    plan.apply([Splice(1, 0, "\n")])
    assert plan.lines == ("a\r\n", "b\n")


def test_a_mark_edited_together_with_text_is_not_taken_for_a_mark() -> None:
    for new in (
        "- [x] b\n",
        "- [x] a ^1 b\n",
        "- [?] a\n",
        "- [x]a\n",
        "- [x] a\n- [ ] b\n",
        "",
        "- [x] a",
        " - [ ] a\n",
    ):
        plan = Plan("- [ ] a\n")
        assert plan.tasks
        plan.apply([Splice(0, 1, new)])
        assert plan.tasks == Plan(new).tasks


@pytest.mark.parametrize(
    "outline",
    [
        [[0, 3, -1, 0]],
        [[0, 3, -1, 0, 9]],
        [[0, 2, -1, 0, 1]],
        [[9, 3, -1, 9, 10]],
        [[-1, 3, -1, 0, 1]],
        [[0, 3, 0, 0, 1]],
        [[0, 3, -1, 0, 1], [0, 3, -1, 0, 1]],
        [[0, 3, -1, 0, 0]],
        [[0, 99, -1, 0, 1]],
        [[0, True, -1, 0, 1]],
        [[0, 3, -1, 0, "1"]],
    ],
)
def test_an_outline_of_another_text_is_ignored(outline: list[list[int]]) -> None:
    assert texts(Plan.restore("- [ ] a\n", outline)) == ["a"]


def test_a_text_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = count_parses(monkeypatch)
    plan = Plan("# T\n\n" + "".join(f"- [ ] item {number}\n" for number in range(20)))
    splices: list[Splice] = []
    assert parsed == []
    while (task := plan.next_to_do()) is not None:
        splices += plan.begin(task, 0)
        splices += plan.tick(task)
        if task.index == 3:
            splices += plan.note(task, "a note")
            splices += plan.add(["more"])
            splices += plan.add(["below"], under=plan.tasks[-1])
    assert len(parsed) == 1
    assert plan.progress == (21, 21)
    other = Plan.restore(parsed[0], Plan(parsed[0]).outline())
    del parsed[:]
    other.apply(splices)
    assert other.tasks == plan.tasks
    assert len(parsed) == 1, "lines came and went, so a parse was needed, and one was enough"


def test_replaying_marks_and_ids_needs_no_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "- [ ] a\n- [ ] b ^x\n"
    plan = Plan(text)
    splices = [change for task in plan.tasks for change in (*plan.begin(task, 0), *plan.tick(task))]
    other = Plan.restore(text, Plan(text).outline())
    parsed = count_parses(monkeypatch)
    other.apply(splices)
    assert other.tasks == plan.tasks
    assert parsed == []


@pytest.mark.parametrize("text", ["", "Some words\n\n- a list of something else"])
def test_writing_a_long_plan_parses_all_of_it(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    parsed = count_parses(monkeypatch)
    plan = Plan(text)
    assert len(plan.write("Long", [f"item {number} ^x" for number in range(1000)])) == 1
    assert plan.identify(0) == [] and max(map(len, parsed)) < len(text) + 40
    assert Plan(plan.text).tasks == plan.tasks


# Size


def test_working_off_many_items_takes_the_square_of_their_number() -> None:
    def of(count: int) -> Callable[[], object]:
        text = "- [ ] all\n" + "".join(f"  - [ ] item {number}\n" for number in range(count))
        plan = Plan.restore(text, Plan(text).outline())

        def work() -> None:
            done = 0
            while (task := plan.next_to_do()) is not None:
                plan.begin(task, done)
                plan.tick(task)
                done = plan.progress.settled
            assert done == count and plan.tasks[0].mark == "done"

        return work

    growth.stays_linear(of, 150)


@pytest.mark.parametrize(
    "make",
    [
        lambda size: ">" * size + " - [ ] a\n",
        lambda size: "- " * size + "[ ] a\n",
        lambda size: "1. " * size + "a\n",
        lambda size: "[" * size + "\n",
        lambda size: "- [" + " " * size + "a\n",
        lambda size: "- [ ] " + "^a " * size + "\n",
        lambda size: "- [ ] a" + " " * size + "b\n",
        lambda size: "".join("  " * (n % 60) + "- [ ] a\n" for n in range(size // 40)),
        lambda size: "- \u00a0" + "- " * size + "[ ] x\n",
        lambda size: "> " * 15 + "- [ ] a\n" + "lazy\n" * (size // 80),
        lambda size: "- [ ] a\n" + "\n" * size,
    ],
    ids=range(11),
)
def test_hostile_texts_take_the_square_of_their_length(make: Callable[[int], str]) -> None:
    def of(size: int) -> Callable[[], object]:
        text = make(size)

        def work() -> None:
            plan = Plan(text)
            assert plan.text == text
            assert len(plan.problems()) >= 0
            for task in plan.tasks[:1]:
                plan.begin(task, 0)
                with suppress(UsageError):  # what stands below lists too deep is not read, so nothing can be put there
                    plan.add(["n"], after=plan.tasks[0])
                plan.note(plan.tasks[0], "x" + " " * size + "y")
            assert plan.remaining() is not None

        return work

    growth.stays_linear(of, 4_000)


def test_importing_it_does_not_load_the_parser() -> None:
    code = "import sys, satchel.workspace.plan; sys.exit('markdown_it' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
