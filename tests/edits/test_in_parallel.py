"""Edits while several items run at once: one more commit, which stops only the items that it is about."""

from __future__ import annotations

import asyncio
from typing import Any

from satchel import Item, Run, agent, step

from .folder import Place
from .running import Gate, going


def make(gate: Gate, calls: list[str], *items: str) -> Any:
    @step
    def note(what: str) -> str:
        gate.pass_through(what)
        return what

    async def work(run: Run[dict[str, Any]], item: Item) -> None:
        calls.append(item.text)
        first = await note(f"{item.text} 1")
        run.state[item.text] = [first, await note(f"{item.text} 2")]
        calls.append(f"{item.text} ends")

    @agent
    async def main(run: Run[dict[str, Any]]) -> Any:
        if not run.todo.items:
            await run.plan("Work", items)
        await run.todo.each(work, parallel=2)
        return dict(run.state)

    return main


def test_an_edit_waits_for_items_that_it_is_not_about(place: Place) -> None:
    gate, calls = Gate("one 1"), list[str]()
    with going(place, make(gate, calls, "one", "two"), gate) as running:
        running.reach("one 1")
        running.until(lambda: '"two": [' in running.text("state.json"), "the second item")
        place.set_data(lambda data: data.update(mine=7))
        assert running.until_taken("state.json").patch[0]["path"] == "/mine"
        running.until(lambda: "[x] two" in running.text(), "the plan")
        place.edit("todo.md", ("- [/] one", "- [ ] three\n- [/] one"))
        running.until(lambda: "three ends" in calls, "the new item")
        gate.open()
        outcome = running.end()
    assert outcome.status == "completed" and outcome.result["mine"] == 7
    assert sorted(calls) == sorted(f"{item}{end}" for item in ("one", "two", "three") for end in ("", " ends"))


def test_an_edit_stops_items_that_it_is_not_about(place: Place) -> None:
    """The person drops one of two that run. The other does not notice."""
    gate, calls = Gate("one 1", "two 1"), list[str]()
    with going(place, make(gate, calls, "one", "two", "three"), gate) as running:
        running.reach("one 1")
        running.reach("two 1")
        place.edit("todo.md", ("[/] two", "[-] two"))
        running.until_told("todo.md was saved")
        gate.open("two 1")
        running.until_taken("todo.md")
        gate.open()
        outcome = running.end()
    assert outcome.status == "completed" and outcome.result.keys() == {"one", "three"}
    assert sorted(calls) == ["one", "one ends", "three", "three ends", "two"]
    assert "- [-] two ^2" in place.text() and place.is_at_the_moment()


def test_an_edit_of_a_value_that_an_item_changes_is_overwritten(place: Place) -> None:
    gate = Gate("one")
    attempts: list[int] = []

    @step
    def note(what: str) -> str:
        gate.pass_through(what)
        return what

    async def work(run: Run[dict[str, Any]], item: Item) -> None:
        before = run.state.setdefault("n", 0)
        attempts.append(before)
        await note(item.text)
        run.state["n"] = before + 1

    @agent
    async def main(run: Run[dict[str, Any]]) -> Any:
        if not run.todo.items:
            await run.plan("Work", ["one", "two"])
        await run.todo.each(work, parallel=2)
        return run.state["n"]

    with going(place, main, gate) as running:
        running.reach("one")
        running.until(lambda: '"n": 1' in running.text("state.json"), "the second item")
        place.set_data(lambda data: data.update(n=10))
        running.until_taken("state.json")
        gate.open()
        outcome = running.end()
    assert outcome.status == "completed" and outcome.result == 11 and 10 in attempts


def test_an_answer_or_a_redone_step_of_a_running_item_is_lost(place: Place) -> None:
    gate = Gate("one 2")
    calls: list[str] = []
    with going(place, make(gate, calls, "one", "two"), gate) as running:
        running.reach("one 2")
        running.until(lambda: place.there("steps/1-one/01-note.json"), "the first step")
        place.edit("steps/1-one/01-note.json", ('"result": "one 1"', '"result": "mine"'))
        running.until_told("01-note.json was saved")
        gate.open()
        outcome = running.end()
    assert outcome.status == "completed" and outcome.result["one"] == ["mine", "one 2"]


def test_a_dropped_item_that_raises_an_error_of_its_own_breaks_the_run(place: Place) -> None:
    """It was cancelled where it waited, and is dropped before it could be tried again."""
    gate = Gate("one 1")

    @step
    def note(what: str) -> str:
        gate.pass_through(what)
        return what

    async def work(run: Run[dict[str, Any]], item: Item) -> None:
        await note(f"{item.text} 1")
        if item.text == "two":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ConnectionError("cut off") from None

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan("Work", ["one", "two"])
        await run.todo.each(work, parallel=2)

    with going(place, main, gate) as running:
        running.reach("one 1")
        running.until(lambda: place.there("steps/2-two/01-note.json"), "its step")
        place.edit("todo.md", ("[/] two", "[-] two"))
        running.until_taken("todo.md")
        gate.open()
        assert running.end().status == "completed"
