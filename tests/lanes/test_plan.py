"""Changes of the plan by items that run in parallel: each is about the item that its author meant."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from satchel import Item, Run, effect, run, step
from satchel.workspace.inspect.load import look
from satchel.workspace.store import DiskStore

from .work import Together, data_of, make, marks

Change = Callable[[Run[Any], str], Any]


async def _cancel(run: Run[Any], mine: str) -> None:
    await run.todo.cancel(mine)


async def _note(run: Run[Any], mine: str) -> None:
    await run.todo.note(mine, "a note")


async def _add_under(run: Run[Any], mine: str) -> None:
    await run.todo.add("more", under=mine)


async def _add_after(run: Run[Any], mine: str) -> None:
    await run.todo.add("more", after=mine)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_cancel, "- [x] check ^4\n- [-] check ^5\n"),
        (_note, "- [x] check ^4\n- [x] check ^5\n\n  a note\n"),
        (_add_under, "- [x] check ^4\n- [x] check ^5\n  - [x] more ^6\n"),
        (_add_after, "- [x] check ^4\n- [x] check ^5\n- [x] more ^6\n"),
    ],
)
def test_a_change_of_an_own_item_is_made_in_another_lanes(workspace: Path, change: Change, expected: str) -> None:
    """While the copy of the first has two new items, the lane next to it begins the third."""
    copied, ada_begun = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def work(run: Run[Any], item: Item) -> None:
        if item.text == "first":
            await run.todo.add("check")
            await run.todo.add("check")
            mine = run.todo.items[-1].id
            copied.set()
            await ada_begun.wait()
            await change(run, mine or "")
        elif item.text == "second":
            await copied.wait()
        elif item.text == "write to Ada":
            ada_begun.set()
        done.append(item.text)

    assert run(workspace, make(work, "first", "second", "write to Ada", parallel=2)).error is None
    assert done.count("write to Ada") == 1 and done.count("check") == (2 if change in (_note, _add_after) else 1)
    text = (workspace / "todo.md").read_text()
    first, _, rest = text.partition("- [x] write to Ada ^")
    assert "a note" not in first and "[-]" not in first and first.count("[x]") == 2, text
    assert _same_but_for_ids(rest.partition("\n")[2].partition("\n<!--")[0], expected), text


def _same_but_for_ids(text: str, expected: str) -> bool:
    lines = [[line.split(" ^")[0] for line in each.splitlines()] for each in (text, expected)]
    return lines[0] == lines[1]


def test_an_item_that_has_just_been_added_can_not_be_changed(workspace: Path) -> None:
    """The item was known only in the copy, so that the commit contradicted itself at every attempt."""
    attempts = Counter[str]()

    async def work(run: Run[Any], item: Item) -> None:
        attempts[item.text] += 1
        if item.text == "one":
            await run.todo.add("spare")
            await run.todo.add("kept")
            spare = next(task for task in run.todo.items if task.text == "spare")
            await run.todo.add("more", under=spare)
            await run.todo.cancel(spare)

    assert run(workspace, make(work, "one", "two")).error is None
    assert marks(workspace) == [("one", "x"), ("two", "x"), ("spare", "-"), ("more", "-"), ("kept", "x")]
    assert attempts == {"one": 1, "two": 1, "kept": 1}


def test_an_item_without_an_id_is_not_found_after_another_was_added(workspace: Path) -> None:
    attempts = Counter[str]()

    async def work(run: Run[Any], item: Item) -> None:
        attempts[item.text] += 1
        if item.text == "one":
            await run.todo.add("new", after=item.id)
            spare = next(task for task in run.todo.items if task.text == "spare")
            assert spare.id is None
            await run.todo.note(spare, "not needed")
            await run.todo.cancel("spare")

    assert run(workspace, make(work, "one", "two", "spare", parallel=2)).error is None
    assert marks(workspace) == [("one", "x"), ("new", "x"), ("two", "x"), ("spare", "-")]
    assert attempts == {"one": 1, "two": 1, "new": 1} and "  not needed\n" in (workspace / "todo.md").read_text()


def test_an_id_that_an_item_has_kept_is_another_items_after_the_commit(workspace: Path) -> None:
    together = Together(3)

    async def work(run: Run[Any], item: Item) -> None:
        if item.text in ("a", "b", "c"):
            for _ in range(2):
                await run.todo.add(f"check {item.text}")
            run.state[item.text] = [task.id for task in run.todo.items if task.text == f"check {item.text}"]
            await together.meet()

    assert run(workspace, make(work, "a", "b", "c", parallel=3)).error is None
    plan = look(DiskStore(workspace)).moment.root.plan
    for name, ids in data_of(workspace).items():
        assert [task.text for id in ids if (task := plan.task(id))] == [f"check {name}"] * 2


def test_the_item_that_two_have_cancelled_is_cancelled_twice(workspace: Path) -> None:
    together, attempts = Together(2), Counter[str]()

    async def work(run: Run[Any], item: Item) -> None:
        attempts[item.text] += 1
        spare = next(task for task in run.todo.items if task.text == "spare")
        if spare.mark == "open":
            await run.todo.cancel(spare)
            await run.todo.add(f"instead, says {item.text}")
        await together.meet()

    assert run(workspace, make(work, "a", "b", "spare", parallel=2)).error is None
    assert [text for text, _ in marks(workspace) if text.startswith("instead, says")][1:] == ["spare"][1:]
    assert attempts["spare"] == 0 and sorted((attempts["a"], attempts["b"])) == [1, 2]


def test_an_item_that_has_ended_meanwhile_is_cancelled(workspace: Path) -> None:
    attempts = Counter[str]()

    async def work(run: Run[Any], item: Item) -> None:
        attempts[item.text] += 1
        if item.text == "one":
            two = run.todo.items[1]
            if two.mark != "done":
                await run.todo.add("new")  # from here on it has a copy
                await run.todo.cancel(two)
                await ended.wait()
                for _ in range(50):
                    await asyncio.sleep(0)
        else:
            ended.set()

    ended = asyncio.Event()
    assert run(workspace, make(work, "one", "two", parallel=2)).error is None
    assert marks(workspace) == [("one", "x"), ("two", "x")] and attempts == {"one": 2, "two": 1}


# One item cancels another that runs


def test_an_item_that_another_has_cancelled_goes_on(workspace: Path) -> None:
    """It ends at its next safe point: its running step finishes, and none begins."""
    in_step, cancelled = asyncio.Event(), asyncio.Event()
    did: list[str] = []

    @step
    async def wait(text: str) -> None:
        in_step.set()
        await cancelled.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        did.append("step")

    @effect
    async def send(text: str) -> None:
        did.append(f"send {text}")

    async def work(run: Run[Any], item: Item) -> None:
        if item.text == "cancels":
            await in_step.wait()
            await run.todo.cancel("cancelled")
            cancelled.set()
        elif item.text == "cancelled":
            run.state["lost"] = True
            await wait(item.text)
            await send(item.text)
        else:
            await send(item.text)

    outcome = run(workspace, make(work, "cancels", "cancelled", "third", parallel=2))
    assert outcome.status == "completed" and sorted(did) == ["send third", "step"]
    assert marks(workspace) == [("cancels", "x"), ("cancelled", "-"), ("third", "x")]
    root = look(DiskStore(workspace)).moment.root
    assert root.data == {} and root.scopes.keys() == {""}, "nothing of it is left open"
    assert not [*(workspace / "steps").glob("2-*")]


@pytest.mark.parametrize("swallows", [False, True])
def test_an_item_that_another_has_cancelled_waits_for_ever(workspace: Path, swallows: bool) -> None:
    waits = asyncio.Event()

    async def work(run: Run[Any], item: Item) -> None:
        if item.text == "cancels":
            await waits.wait()
            await run.todo.cancel("parent")
            return
        try:
            waits.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not swallows:
                raise
        run.state["lost"] = True

    (workspace / "todo.md").write_text("- [ ] cancels\n- [ ] parent\n  - [ ] waits\n  - [ ] not begun\n- [ ] last\n")
    again = asyncio.Event()

    async def both(run: Run[Any], item: Item) -> None:
        await (work(run, item) if item.text != "last" else asyncio.sleep(0))
        again.set()

    assert run(workspace, make(both, parallel=2)).status == "completed"
    assert [mark for _, mark in marks(workspace)] == ["x", "-", "-", "-", "x"] and data_of(workspace) == {}


def test_an_item_that_another_has_cancelled_is_entered_once_more(workspace: Path) -> None:
    """It waits at the door, because it has contradicted another one twice, or to be tried again after a failure."""
    attempts, entered = Counter[str](), list[str]()
    failed = asyncio.Event()

    async def work(run: Run[Any], item: Item) -> None:
        attempts[item.text] += 1
        if item.text == "fails":
            failed.set()
            raise ConnectionError("for now")
        if item.text == "cancels":
            await failed.wait()
            await run.todo.cancel("fails")
        entered.append(item.text)

    assert run(workspace, make(work, "fails", "cancels", parallel=2)).status == "completed"
    assert attempts == {"fails": 1, "cancels": 1} and marks(workspace) == [("fails", "-"), ("cancels", "x")]


def test_an_item_cancels_itself(workspace: Path) -> None:
    async def work(run: Run[Any], item: Item) -> None:
        await run.todo.cancel(item.id)
        run.state[item.text] = True

    assert run(workspace, make(work, "one", "two")).status == "completed"
    assert marks(workspace) == [("one", "-"), ("two", "-")] and data_of(workspace) == {"one": True, "two": True}


@pytest.mark.parametrize("parallel", [1, 3])
def test_an_item_under_one_that_runs_is_never_done(workspace: Path, parallel: int) -> None:
    did: list[str] = []

    async def work(run: Run[Any], item: Item) -> None:
        if item.text == "one" and "two" not in [task.text for task in run.todo.items]:
            await run.todo.add("two", under=item.id)
        did.append(item.text)

    assert run(workspace, make(work, "one", parallel=parallel)).status == "completed"
    assert did == ["one", "two"] and marks(workspace) == [("one", "x"), ("two", "x")]
