"""Any plan that a run goes on with while a person edits it: nothing is lost, and merging again changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from hypothesis import event, given
from hypothesis import strategies as st
from properties import examples

from satchel.workspace.base.errors import UsageError
from satchel.workspace.plan import Plan, Task, between, changes, merge_plans, settle
from satchel.workspace.plan.match import match
from satchel.workspace.plan.task_lines import apply, body, ending, split
from satchel.workspace.plan.weave import Side

COMMON = examples(200)

WORDS = ["read a.txt", "read b.txt", "check", "send", "write"]
PROSE = ["# Plan ", "## Later ", "some words ", "", "```", "> a quote ", "<!-- x --> ", "lazy "]
MARKS = " x-/X"


@st.composite
def plans(draw: st.DrawFn, twins: bool = False) -> str:
    """Plans as people and agents write them, ids here and there. With twins, items may read the same."""
    lines: list[str] = []
    depth = 0
    ids = iter(range(1, 99))
    for number in range(draw(st.integers(0, 8))):
        kind = draw(st.integers(0, 9))
        if kind == 0:
            own = draw(st.sampled_from(PROSE))
            lines += ["", own if twins or not own.endswith(" ") else f"{own}{number}", ""]
            depth = -1
        elif kind == 1 and lines and depth >= 0:
            lines += [
                "",
                "  " * (depth + 1)
                + draw(st.sampled_from(["a note" if twins else f"a note, {number}", f"note {number}"])),
            ]
        else:
            depth = draw(st.integers(0, depth + 1)) if depth >= 0 else 0
            words = draw(st.sampled_from(WORDS)) if twins else f"item {number}"
            words += f" ^{next(ids)}" if draw(st.booleans()) else ""
            lines.append("  " * depth + f"- [{draw(st.sampled_from(MARKS))}] {words}")
    end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n"]))
    return end.join(lines) + (end if draw(st.booleans()) else "")


RUN: list[Callable[[Plan, Task, int], object]] = [
    lambda plan, task, _: plan.begin(task, 50),
    lambda plan, task, _: plan.begin(task, 50),
    lambda plan, task, _: plan.tick(task),
    lambda plan, task, _: plan.tick(task),
    lambda plan, task, _: plan.cancel(task),
    lambda plan, task, _: plan.reopen(task),
    lambda plan, task, number: plan.note(task, f"noted by the run, {number}"),
    lambda plan, task, number: plan.add([f"found by the run, {number}"], after=task),
    lambda plan, task, number: plan.add([f"below, by the run, {number}", f"and {number}"], under=task),
    lambda plan, task, _: plan.identify(60),
]


@st.composite
def run_on(draw: st.DrawFn, text: str) -> str:
    """What a run makes of a plan."""
    plan = Plan(text)
    for number in range(draw(st.integers(0, 4))):
        with suppress(UsageError):
            if plan.tasks:
                draw(st.sampled_from(RUN))(plan, draw(st.sampled_from(plan.tasks)), number)
            else:
                plan.add(["planned by the run"])
    return plan.text


@st.composite
def edited(draw: st.DrawFn, text: str) -> str:
    """What a person or an agent makes of a file, line by line."""
    lines = split(text)
    for number in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(0, len(lines) - 1)))
        line = lines[at] if lines else ""
        kind = draw(
            st.sampled_from(["mark", "mark", "mark", "id", "ids", "words", "drop", "move", "new", "deep", "crlf"])
        )
        if kind == "mark" and "[" in line:
            place = line.index("[") + 1
            lines[at] = line[:place] + draw(st.sampled_from(MARKS)) + line[place + 1 :]
        elif kind == "id" and "^" in line:
            lines[at] = line.partition(" ^")[0] + ending(line)
        elif kind == "ids":
            lines = [each.partition(" ^")[0] + ending(each) if "^" in each else each for each in lines]
        elif kind == "words" and "]" in line:
            lines[at] = line.replace("] ", "] please ", 1)
        elif kind == "drop" and lines:
            del lines[at]
        elif kind == "move" and lines:
            moved = lines.pop(at)
            lines.insert(draw(st.integers(0, len(lines))), moved if ending(moved) else moved + "\n")
        elif kind == "new":
            item = draw(st.sampled_from(["- [ ] by a person, ", "  - [ ] below, ", "- [x] did it, ", "by a person, "]))
            new = draw(st.sampled_from(["", "## Mine", f"{item}{number}", f"{item}{number}"]))
            lines.insert(at, new + "\n")
        elif kind == "deep":
            lines[at : at + 1] = ["  " + line]
        elif kind == "crlf":
            lines = [body(each) + "\r\n" if ending(each) else each for each in lines]
    return "".join(lines)


@st.composite
def versions(draw: st.DrawFn, twins: bool = False, strange: bool = True) -> tuple[str | None, str, str]:
    """Base, ours, theirs: mostly two edits of one plan. Theirs may be written anew; and ours, if `strange`."""
    base = draw(plans(twins))
    kind = draw(st.integers(0, 9))
    ours = draw(plans(twins)) if strange and kind == 0 else draw(run_on(base))
    if kind == 1:
        ours = draw(edited(ours))
    theirs = draw(edited(base)) if kind != 2 else draw(plans(twins))
    if kind == 3:
        return None, ours, draw(edited(ours))
    return (None if draw(st.integers(0, 3)) == 0 else base), ours, theirs


def parsed(texts: tuple[str | None, str, str]) -> tuple[Plan | None, Plan, Plan]:
    base, ours, theirs = texts
    return None if base is None else Plan(base), Plan(ours), Plan(theirs)


def plainly(plan: Plan) -> str:
    """The text, for an `x` of either size, and for parents begun or open: nothing depends on those."""
    lines = [line.replace("[X]", "[x]", 1) for line in plan.lines]
    for task in plan.tasks:
        if not task.is_leaf:
            lines[task.line] = lines[task.line].replace("[/]", "[ ]", 1)
    return "".join(lines)


def words(plan: Plan) -> Counter[str]:
    return Counter(task.text for task in plan.tasks)


def prose(plan: Plan) -> Counter[str]:
    at = {task.line for task in plan.tasks}
    lines = (body(line).strip() for number, line in enumerate(plan.lines) if number not in at)
    return Counter(line for line in lines if line)


@COMMON
@given(plans(), st.data())
def test_a_file_that_was_not_edited_gives_ours(base: str, data: st.DataObject) -> None:
    ours = data.draw(run_on(base))
    found = merge_plans(Plan(base), Plan(ours), Plan(base))
    assert (found.plan.text, found.conflicts) == (ours, ())


@COMMON
@given(plans(twins=True), st.data())
def test_an_edit_of_a_plan_at_rest_gives_theirs_but_for_marks_and_ids(base: str, data: st.DataObject) -> None:
    theirs = data.draw(edited(base))
    found = merge_plans(Plan(base), Plan(base), Plan(theirs))
    if found.conflicts:
        assert [conflict.why for conflict in found.conflicts] == ["everything_removed"]
        return
    old, new = Plan(theirs), found.plan
    assert len(old.lines) == len(new.lines)
    tasks = {task.line: task for task in old.tasks}
    for number, (one, other) in enumerate(zip(old.lines, new.lines, strict=True)):
        if number not in tasks:
            assert one == other
    assert [(task.line, task.text, task.parent) for task in old.tasks] == [
        (task.line, task.text, task.parent) for task in new.tasks
    ]
    assert all(task.id in (None, other.id) for task, other in zip(old.tasks, new.tasks, strict=True))


@COMMON
@given(versions(strange=False))
def test_the_same_edit_merged_twice_is_merged_once(texts: tuple[str | None, str, str]) -> None:
    base, ours, theirs = parsed(texts)
    found = merge_plans(base, ours, theirs)
    event(", ".join(sorted({conflict.why for conflict in found.conflicts})) or "merged")
    if not found.conflicts:
        again = merge_plans(base, found.plan, theirs)
        assert again.conflicts == ()
        assert plainly(again.plan) == plainly(found.plan)


@COMMON
@given(versions(twins=True))
def test_nothing_that_a_person_added_is_lost(texts: tuple[str | None, str, str]) -> None:
    base, ours, theirs = parsed(texts)
    found = merge_plans(base, ours, theirs)
    if found.conflicts:
        assert found.plan.text == ours.text
        return
    before = ours if base is None else base
    assert not words(theirs) - words(before) - words(found.plan)
    assert not prose(theirs) - prose(before) - prose(found.plan)


@COMMON
@given(versions())
def test_nothing_that_the_run_added_is_lost(texts: tuple[str | None, str, str]) -> None:
    base, ours, theirs = parsed(texts)
    found = merge_plans(base, ours, theirs)
    if found.conflicts or base is None:
        return
    assert not words(ours) - words(base) - words(found.plan)
    ids = {task.id for task in found.plan.tasks}
    kept = match(ours, theirs).values()
    assert all(task.id in ids for task in ours.tasks if task.id and task.index in kept)


@COMMON
@given(versions(strange=False))
def test_nothing_that_the_run_ticked_is_unticked_unasked(texts: tuple[str | None, str, str]) -> None:
    base, ours, theirs = parsed(texts)
    found = merge_plans(base, ours, theirs)
    if found.conflicts:
        return
    old, known = ours.tasks, match(ours, found.plan)
    before = {} if base is None else {id(old[mine]): base.at(was) for was, mine in match(ours, base).items()}
    file = {id(old[mine]): theirs.at(its) for its, mine in match(ours, theirs).items()}
    for task in found.plan.tasks:
        mine = old[known[task.index]] if task.index in known else None
        if mine is None or mine.mark != "done" or task.is_finished or not task.is_leaf:
            continue
        own = [mine]
        while own[-1].parent is not None:
            own.append(old[own[-1].parent])
        assert any(
            one in file and not file[one].is_finished and (one not in before or before[one].mark != file[one].mark)
            for one in map(id, own)
        ), "theirs has unticked it, or an item above it"


@COMMON
@given(versions(twins=True), st.sampled_from(["ours", "theirs"]))
def test_a_preference_leaves_no_conflict(texts: tuple[str | None, str, str], prefer: Side) -> None:
    base, ours, theirs = parsed(texts)
    found = merge_plans(base, ours, theirs)
    settled = merge_plans(base, ours, theirs, prefer=prefer)
    assert settled.conflicts == ()
    if not found.conflicts:
        assert settled.plan.text == found.plan.text
    elif prefer == "ours" and not any(conflict.why in ("text", "prose") for conflict in found.conflicts):
        ids = {task.id for task in settled.plan.tasks}
        assert base is not None or all(task.id in ids for task in ours.tasks if task.id)


@COMMON
@given(versions(twins=True), st.sampled_from([None, "ours", "theirs"]))
def test_no_argument_is_changed(texts: tuple[str | None, str, str], prefer: Side | None) -> None:
    versions = parsed(texts)
    found = merge_plans(*versions, prefer=prefer)
    assert found.plan.tasks == Plan(found.plan.text, found.plan.own_work).tasks
    with suppress(UsageError):
        found.plan.add(["more"])
    for plan, text in zip(versions, texts, strict=True):
        assert plan is None or (plan.text == text and plan.tasks == Plan(plan.text).tasks)


@COMMON
@given(plans(twins=True), st.data())
def test_settling_is_done_once(before: str, data: st.DataObject) -> None:
    edit = data.draw(edited(before))
    plan, replayed = Plan(edit), Plan(edit)
    replayed.apply(settle(Plan(before), plan))
    assert replayed.text == plan.text
    assert settle(plan, plan.copy()) == []


@COMMON
@given(plans(twins=True), st.data())
def test_changes_account_for_every_item(before: str, data: st.DataObject) -> None:
    old, new = Plan(before), Plan(data.draw(edited(before)))
    found = changes(old, new)
    assert len(old) - len(found.removed) == len(new) - len(found.added)
    assert bool(changes(old, old.copy())) is False
    back = changes(new, old)
    assert (len(back.added), len(back.removed)) == (len(found.removed), len(found.added))
    assert (back.moved, back.prose) == (found.moved, found.prose)


@COMMON
@given(st.text("ab\r\n", max_size=12), st.text("ab\r\n", max_size=12))
def test_a_splice_between_any_two_texts(old: str, new: str) -> None:
    lines = split(old)
    for splice in between(lines, split(new)):
        apply(lines, splice)
    assert lines == split(new)
