"""Any text that looks like a plan, and any edit of it: nothing but the edit changes, and the parser agrees."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st
from properties import examples

from satchel.workspace.base.errors import UsageError
from satchel.workspace.plan import Plan, Splice, Task
from satchel.workspace.plan.task_lines import split

COMMON = examples(200)

BITS = st.sampled_from(
    [
        "a",
        "read b.txt",
        "^x",
        "^7",
        "x ^Set-up",
        "\\^7",
        "🙂 é",
        "foo  ",
        "[ ] no",
        "`code",
        "a\\",
        "\x00",
        "\x0c",
        "\u2028b",
        "\u00a0",
        "> q",
        "- [ ] x",
        "1. y",
        "# h",
        "```",
        "<!-- c -->",
        "<div>",
        "[a]: b",
        "===",
        "---",
        "***",
        "    four",
        "\tt",
        "",
    ]
)
WORDS = st.one_of(BITS, st.lists(BITS, max_size=3).map(" ".join), st.text(max_size=8))
INDENT = st.sampled_from(
    ["", "", "", " ", "  ", "  ", "   ", "    ", "      ", "\t", "> ", ">", "  > ", "> > ", "- ", "1. "]
)
BULLET = st.sampled_from(["-", "-", "-", "*", "+", "1.", "2.", "9.", "1)", "007."])
GAP = st.sampled_from([" ", " ", " ", "  ", "\t", "    ", "     "])
MARK = st.sampled_from(["[ ]", "[ ]", "[ ]", "[x]", "[X]", "[-]", "[/]", "[?]", "[]", "[x]y", "[ ](u)", "[1]"])
ITEM = st.builds(
    lambda *parts: "".join(parts), INDENT, BULLET, GAP, MARK, st.sampled_from([" ", " ", "  ", "\t", ""]), WORDS
)
PROSE = st.builds(lambda indent, words: indent + words, INDENT, WORDS)
OTHER = st.sampled_from(
    [
        "",
        "",
        "",
        ">",
        "```",
        "  ```",
        "~~~",
        "<!--",
        "-->",
        "- [ ] in a comment",
        "# Heading",
        "## [ ] no",
        "===",
        "---",
        "- ",
        "-",
        "  - plain",
        "1. plain",
        "    - [ ] deep",
        "[a]: /url",
        "  [ ] x",
        "\ufeff",
    ]
)
ENDING = st.sampled_from(["\n", "\n", "\n", "\n", "\r\n", "\r"])


@st.composite
def texts(draw: st.DrawFn) -> str:
    ends = st.just(draw(ENDING)) if draw(st.booleans()) else ENDING
    line = st.one_of(ITEM, ITEM, ITEM, PROSE, OTHER)
    text = "".join(draw(st.lists(st.tuples(line, ends).map("".join), max_size=12)))
    if draw(st.integers(0, 3)) == 0:
        text = text.rstrip("\r\n")
    return ("\ufeff" if draw(st.integers(0, 9)) == 0 else "") + text


@st.composite
def plain_texts(draw: st.DrawFn) -> str:
    """Tidy plans, as most are: here edits are done without a parse."""
    lines: list[str] = []
    depth = 0
    for _ in range(draw(st.integers(1, 12))):
        depth = draw(st.integers(0, depth + 1)) if lines else 0
        bullet = draw(st.sampled_from(["-", "-", "-", "*", "1.", "10."]))
        lines.append("    " * depth + f"{bullet} [{draw(st.sampled_from(' x-/'))}] {draw(st.sampled_from('abc'))}")
        if draw(st.integers(0, 5)) == 0:
            lines.append("")
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\ntext\n"]))


ANY = st.one_of(texts(), plain_texts())


def facts(plan: Plan) -> tuple[object, ...]:
    """All that can be asked of a plan."""
    leaf = plan.next_to_do()
    ids = [plan.task(task.id) for task in plan.tasks if task.id]
    return (
        plan.text,
        plan.lines,
        plan.tasks,
        plan.outline(),
        leaf,
        plan.progress,
        plan.dropped,
        ids,
        plan.problems(),
        plan.remaining(),
    )


def is_dropped(plan: Plan, task: Task | None) -> bool:
    """Whether the nearest item that is finished, the task or one above it, was cancelled."""
    while task is not None and task.mark not in ("done", "cancelled"):
        task = None if task.parent is None else plan.tasks[task.parent]
    return task is not None and task.mark == "cancelled"


def assert_like_a_fresh_parse(plan: Plan) -> None:
    assert plan.dropped == sum(is_dropped(plan, task) for task in plan.tasks if task.is_work)
    assert facts(plan) == facts(Plan(plan.text, plan.own_work))


def assert_only_the_splices_changed(before: str, after: str, splices: list[Splice]) -> None:
    lines = split(before)
    for line, removed, text in splices:
        assert not text or text[-1] in "\r\n" or line + removed == len(lines), "a splice is whole lines"
        lines[line : line + removed] = split(text)
    assert lines == split(after)
    replayed = Plan(before)
    replayed.apply(splices)
    assert replayed.text == after
    known = Plan(before)
    assert known.tasks is not None
    known.apply(splices)
    assert facts(known) == facts(replayed)


def pick(data: st.DataObject, plan: Plan) -> Task:
    assume(plan.tasks)
    return data.draw(st.sampled_from(plan.tasks))


@COMMON
@given(ANY)
def test_reading_changes_no_byte(text: str) -> None:
    plan = Plan(text)
    assert plan.tasks is not None
    assert plan.text == text == "".join(plan.lines)
    for task, (line, column, *_) in zip(plan.tasks, plan.outline(), strict=True):
        assert re.match(r"\[[ xX/-]\](\s|\Z)", plan.lines[line][column - 1 :])
        assert task.line == line


@COMMON
@given(ANY)
def test_a_restored_plan_is_a_parsed_one(text: str) -> None:
    plan = Plan(text)
    restored = Plan.restore(text, plan.outline())
    assert restored._reading is not None
    assert facts(restored) == facts(plan)


@COMMON
@given(ANY, st.lists(st.lists(st.integers(-2, 30), min_size=3, max_size=6), max_size=4))
def test_an_outline_of_anything_does_no_harm(text: str, outline: list[list[int]]) -> None:
    plan = Plan.restore(text, outline)
    assert len(plan.tasks) == len(plan.outline())
    assert plan.problems() is not None
    assert plan.remaining() is not None


MARKING: list[Callable[[Plan, Task], list[Splice]]] = [Plan.tick, Plan.cancel, Plan.reopen]


@COMMON
@given(ANY, st.data())
def test_a_mark_changes_one_character(text: str, data: st.DataObject) -> None:
    plan = Plan(text)
    for _ in range(3):
        task, before = pick(data, plan), plan.text
        splices = data.draw(st.sampled_from(MARKING))(plan, task)
        assert_only_the_splices_changed(before, plan.text, splices)
        assert len(plan.text) == len(before)
        columns = {task.line: plan.outline()[task.index][1] for task in plan.tasks}
        lines = split(before)
        for line, removed, new in splices:
            column = columns[line]
            assert removed == 1
            assert lines[line][:column] + new[column] + lines[line][column + 1 :] == new
        assert_like_a_fresh_parse(plan)


@COMMON
@given(ANY, st.data(), st.integers(0, 20))
def test_an_id_is_appended_and_nothing_else(text: str, data: st.DataObject, highest: int) -> None:
    plan = Plan(text)
    task = pick(data, plan)
    ids = [int(other.id) for other in plan.tasks if other.id and other.id.isdigit()]
    splices = plan.begin(task, highest)
    assert_only_the_splices_changed(text, plan.text, splices)
    now = plan.tasks[task.index]
    assert (now.mark, now.text) == ("begun", task.text)
    assert now.id == (task.id or str(max([highest, *ids]) + 1))
    assert_like_a_fresh_parse(plan)


@COMMON
@given(ANY, st.integers(0, 20))
def test_items_that_read_the_same_get_ids_of_their_own(text: str, highest: int) -> None:
    plan = Plan(text)
    before = plan.tasks
    splices = plan.identify(highest)
    assert_only_the_splices_changed(text, plan.text, splices)
    for old, new in zip(before, plan.tasks, strict=True):
        twins = sum(other.text == old.text for other in before)
        assert (old.id or (None if twins == 1 or old.is_finished else new.id)) == new.id
        assert (old.text, old.mark) == (new.text, new.mark)
        assert new.id or new.is_finished or twins == 1
    assert plan.identify(highest) == []
    assert_like_a_fresh_parse(plan)


def read_back(words: str) -> str:
    return " ".join(part.strip() for part in words.replace("\r", "\n").split("\n") if part.strip())


@COMMON
@given(ANY, st.data(), st.lists(WORDS, min_size=1, max_size=3), st.sampled_from(["after", "under", "", "", "write"]))
def test_new_items_read_back_and_move_nothing(text: str, data: st.DataObject, words: list[str], where: str) -> None:
    plan = Plan(text)
    assume(all(read_back(one) for one in words))
    before = plan.tasks
    task = pick(data, plan) if where in ("after", "under") else None
    try:
        if where == "write":
            splices = plan.write("Title", words)
        else:
            splices = plan.add(words, **({where: task} if where else {}))
    except UsageError as error:
        event(f"refused: {error.what[:40]}")
        assert facts(plan) == facts(Plan(text)), "a call that raises has changed nothing"
        return
    assert_only_the_splices_changed(text, plan.text, splices)
    old = [(one.text, one.id) for one in before]
    (line, removed, put), *_ = splices
    places = range(line + removed, line + len(split(put)))
    new = [one for one in plan.tasks if one.line in places]
    assert [(one.text, one.id) for one in plan.tasks if one.line not in places] == old
    assert [(one.text, one.id, one.mark) for one in new] == [(read_back(word), None, "open") for word in words]
    assert all(one.is_leaf for one in new)
    if task is not None and where == "under":
        assert {one.parent for one in new} == {task.index}
    if task is not None and where == "after":
        assert len({one.parent for one in new}) == 1
        assert (new[0].parent is None) == (task.parent is None)
    assert_like_a_fresh_parse(plan)


@COMMON
@given(ANY, st.data(), st.one_of(st.lists(WORDS, max_size=4).map("\n".join), st.text(max_size=20)))
def test_a_note_is_prose_whatever_it_says(text: str, data: st.DataObject, words: str) -> None:
    plan = Plan(text)
    task = pick(data, plan)
    before = plan.tasks
    try:
        splices = plan.note(task, words)
    except UsageError as error:
        event(f"refused: {error.what[:40]}")
        assert facts(plan) == facts(Plan(text))
        return
    assert_only_the_splices_changed(text, plan.text, splices)
    assert [(one.text, one.id, one.mark, one.parent) for one in plan.tasks] == [
        (one.text, one.id, one.mark, one.parent) for one in before
    ]
    assert_like_a_fresh_parse(plan)


@COMMON
@given(plain_texts(), st.data(), st.one_of(st.lists(WORDS, max_size=4).map("\n".join), st.text(max_size=20)))
def test_a_tidy_plan_takes_any_note_and_any_item(text: str, data: st.DataObject, words: str) -> None:
    plan = Plan(text)
    plan.note(pick(data, plan), words)
    plan.note(pick(data, plan), words)
    assert_like_a_fresh_parse(plan)
    if read_back(words):
        plan.add([words], under=pick(data, plan))
        plan.add([words, "b ^c"], after=pick(data, plan))
        plan.add([words])
        assert_like_a_fresh_parse(plan)


@examples(60)
@given(plain_texts())
def test_a_run_ends_with_every_leaf_settled(text: str) -> None:
    plan = Plan(text)
    turns = 0
    while task := plan.next_to_do():
        assert task == next(one for one in plan.tasks if one.is_leaf and not settled(plan, one))
        plan.begin(task, turns)
        plan.tick(task)
        turns += 1
    assert plan.progress.settled == plan.progress.leaves
    assert all(settled(plan, one) for one in plan.tasks if one.is_leaf)
    assert_like_a_fresh_parse(plan)


def settled(plan: Plan, task: Task) -> bool:
    return task.is_finished or (task.parent is not None and settled(plan, plan.tasks[task.parent]))


@pytest.mark.parametrize("seam", ["a\rb", "a\r\nb", "a\n\rb", "\r\n\r", "a\x0b\x0c\x1c\x85\u2028b"])
def test_lines_end_where_markdown_ends_them(seam: str) -> None:
    assert "".join(split(seam)) == seam
    assert len(split(seam)) == {"a\rb": 2, "a\r\nb": 2, "a\n\rb": 3, "\r\n\r": 2}.get(seam, 1)
