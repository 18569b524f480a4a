"""Edits while several items run at once: one more commit, which stops only the items that it is about."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from satchel import Item, Retry, Run, agent, step
from satchel.workspace import journal
from satchel.workspace.journal import StepCompleted

from .folder import Place
from .running import Gate, Running, going


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


def test_an_edit_of_a_step_stops_a_named_scope_that_it_is_not_about(place: Place) -> None:
    gate, calls = Gate("one 2", "two 2"), list[str]()

    @step
    def note(what: str) -> str:
        gate.pass_through(what)
        return what

    async def work(run: Run[dict[str, Any]], name: str) -> None:
        calls.append(name)
        first = await note(f"{name} 1")
        run.state[name] = [first, await note(f"{name} 2")]

    @agent
    async def main(run: Run[dict[str, Any]]) -> Any:
        await asyncio.gather(*(run.scope(name, work, run, name) for name in ("one", "two")))
        return dict(run.state)

    with going(place, main, gate) as running:
        for name in ("one", "two"):
            gate.reach(f"{name} 2")
        path = "steps/_one/01-note.json"
        running.until(lambda: place.there(path), "the first step")
        place.edit(path, ('"result": "one 1"', '"result": "mine"'))
        running.until_told("01-note.json was saved")
        gate.open("one 2")
        running.until_taken(path)
        gate.open()
        outcome = running.end()
    assert outcome.status == "completed", outcome.error
    assert outcome.result == {"one": ["mine", "one 2"], "two": ["two 1", "two 2"]}
    assert sorted(calls) == ["one", "one", "two"]


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


# Nothing begins that a waiting edit is about


def test_a_dropped_item_begins_again_while_the_edit_waits_for_another(place: Place) -> None:
    gate, calls = Gate("one 1", "two 1"), list[str]()
    with going(place, make(gate, calls, "one", "two", "three", "four"), gate) as running:
        running.reach("one 1")
        running.reach("two 1")
        place.edit("todo.md", ("[/] one", "[-] one"), ("[/] two", "[-] two"), ("[ ] three", "[-] three"))
        running.until_told("todo.md was saved")
        gate.open("one 1")
        running.until(lambda: "four ends" in calls, "an item that the edit is not about")
        gate.open()
        outcome = running.end()
    assert outcome.status == "completed" and outcome.result.keys() == {"four"}
    assert calls == ["one", "two", "four", "four ends"] and gate.calls == ["one 1", "two 1", "four 1", "four 2"]


def test_an_item_begins_in_words_that_a_person_has_corrected(place: Place) -> None:
    gate, calls = Gate("one 1", "two 1"), list[str]()
    with going(place, make(gate, calls, "one", "two", "three"), gate) as running:
        running.reach("one 1")
        running.reach("two 1")
        place.edit("todo.md", ("[/] two", "[-] two"), ("[ ] three", "[ ] third"))
        running.until_told("todo.md was saved")
        gate.open("one 1")
        running.until(lambda: "one ends" in calls, "the other item")
        gate.open()
        outcome = running.end()
    assert outcome.status == "completed" and outcome.result.keys() == {"one", "third"} and "three" not in calls


@pytest.mark.parametrize("is_refused", [False, True], ids=["taken back", "refused"])
def test_items_wait_for_an_edit_that_never_comes(place: Place, is_refused: bool) -> None:
    gate, calls = Gate("one 1", "two 1"), list[str]()
    with going(place, make(gate, calls, "one", "two", "three"), gate) as running:
        running.reach("one 1")
        running.reach("two 1")
        before = place.text()
        place.edit("todo.md", ("[/] one", "[-] one"), ("[/] two", "[-] two"), ("[ ] three", "[-] three"))
        running.until_told("todo.md was saved")
        gate.open("one 1")
        place.put("todo.md", before.replace("[/] one", "[?] one") if is_refused else before)
        running.until(lambda: "one ends" in calls and "three ends" in calls, "those that it was about")
        gate.open()
        outcome = running.end()
    assert outcome.status == "completed" and outcome.result.keys() == {"one", "two", "three"}


def test_an_attempt_at_a_call_begins_in_a_dropped_item(place: Place) -> None:
    gate, tried = Gate("two"), list[str]()

    @step(retry=Retry(attempts=5, first=0.01))
    def flaky(text: str) -> None:
        tried.append(text)
        gate.pass_through(text)
        if text == "two":
            raise ConnectionError("not now")

    async def work(run: Run[dict[str, Any]], item: Item) -> None:
        await flaky(item.text)

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan("Work", ["one", "two"])
        await run.todo.each(work, parallel=2)

    with going(place, main, gate) as running:
        running.reach("two")
        place.edit("todo.md", ("[/] two", "[-] two"))
        running.until_told("todo.md was saved")
        gate.open()
        assert running.end().status == "completed"
    assert tried.count("two") == 1


# Items that have begun and do not run: they wait to run alone, or behind one that does


class Losing:
    """The item `loses` contradicts two others. Then it waits to run alone while `long` runs, and `last` behind it."""

    def __init__(self) -> None:
        self.gate, self.calls = Gate("long"), Counter[str]()
        entered = {number: asyncio.Event() for number in (1, 2)}
        won = {number: asyncio.Event() for number in (1, 2)}
        lost = asyncio.Event()

        @step
        def wait(text: str) -> None:
            self.gate.pass_through(text)

        async def work(run: Run[dict[str, Any]], item: Item) -> None:
            self.calls[item.text] += 1
            attempt = self.calls["loses"]
            if item.text == "loses":
                before = run.state.setdefault("n", 0)
                if attempt < 3:
                    entered[attempt].set()
                    await won[attempt].wait()
                    await some_turns()
                    if attempt == 2:
                        lost.set()
                run.state["n"] = before + 1
            elif item.text.startswith("wins"):
                number = int(item.text[-1])
                await entered[number].wait()
                run.state["n"] = run.state.get("n", 0) + 10
                won[number].set()
            elif item.text == "between":
                await lost.wait()
                await some_turns()
            else:
                await wait(item.text)

        @agent
        async def main(run: Run[dict[str, Any]]) -> Any:
            if not run.todo.items:
                await run.plan("Work", ["loses", "long", "wins 1", "wins 2", "between", "last"])
            await run.todo.each(work, parallel=3)
            return run.state["n"]

        self.main = main

    def reach(self, running: Running) -> None:
        running.reach("long")
        running.until(lambda: "[/] last" in running.text(), "the item behind it")


async def some_turns() -> None:
    """Another item commits, and its lane goes on."""
    for _ in range(50):
        await asyncio.sleep(0)


def _remarked(place: Place, item: str, mark: str) -> None:
    line = next(line for line in place.text().splitlines(keepends=True) if item in line)
    place.edit("todo.md", (line, line.replace("[/]", mark) if mark else ""))


@pytest.mark.parametrize("mark", ["[-]", "", "[ ]"], ids=["dropped", "removed", "restarted"])
def test_an_item_that_waits_to_run_alone_is_entered_as_if_there_were_no_edit(place: Place, mark: str) -> None:
    losing = Losing()
    with going(place, losing.main, losing.gate) as running:
        losing.reach(running)
        _remarked(place, "loses", mark)
        running.until_taken("todo.md")
        losing.gate.open()
        outcome = running.end()
    assert outcome.status == "completed" and losing.calls["loses"] == (3 if mark == "[ ]" else 2)
    assert outcome.result == (21 if mark == "[ ]" else 20) and losing.calls["last"] == 1


def test_an_item_behind_one_that_waits_to_run_alone_is_entered_after_it_was_dropped(place: Place) -> None:
    losing = Losing()
    with going(place, losing.main, losing.gate) as running:
        losing.reach(running)
        _remarked(place, "last", "[-]")
        running.until_taken("todo.md")
        losing.gate.open()
        outcome = running.end()
    assert outcome.status == "completed" and outcome.result == 21 and losing.calls["last"] == 0


@pytest.mark.parametrize("waits", ["retry", "sleep"])
def test_an_edit_waits_for_a_call_that_only_waits(place: Place, waits: str) -> None:
    """In a dropped item nobody needs its next attempt, nor the end of its sleep."""
    gate = Gate("one")

    @step(retry=Retry(attempts=5, first=1000.0, longest=2000.0))
    async def flaky() -> None:
        raise ConnectionError("not now")

    @step
    def wait(text: str) -> None:
        gate.pass_through(text)

    async def work(run: Run[dict[str, Any]], item: Item) -> None:
        await wait(item.text)
        if item.text == "two":
            await (flaky() if waits == "retry" else run.sleep(9.9))

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan("Work", ["one", "two"])
        await run.todo.each(work, parallel=2)

    with going(place, main, gate) as running:
        running.reach("one")
        running.until(lambda: place.there("steps/2-two/01-wait.json"), "its first step")
        place.edit("todo.md", ("[/] two", "[-] two"))
        running.until_taken("todo.md")
        gate.open()
        assert running.end().status == "completed"
    lines = journal.read(place.store, after=0).lines
    assert "sleep" not in [line.record.step for line in lines if isinstance(line.record, StepCompleted)]
