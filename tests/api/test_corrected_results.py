"""A result is found wrong some items later. It is corrected, and only what depended on it is done again."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Make
from properties import ROUNDS, seed

import satchel
from satchel import Item, Run, agent, effect, step
from satchel.runtime.api import Handle

from .test_rewinding import Calls, data, is_sound

SAID = {"sales": "sales grew by 40%", "costs": "costs fell by 2%"}


def reporting(calls: Calls) -> Any:
    """Summarises, concludes and mails. The first summary is made up."""

    @step
    async def summarise(topic: str) -> str:
        calls.append(f"summarise {topic}")
        return SAID[topic]

    @step
    async def conclude(sales: str, costs: str) -> str:
        calls.append("conclude")
        return f"As {sales} and {costs}, we hire."

    @effect
    async def file(topic: str) -> str:
        calls.append(f"file {topic}")
        return topic

    async def work(run: Run[Any], item: Item) -> None:
        verb, _, topic = item.text.partition(" ")
        if verb == "Summarise":
            run.state[topic] = await summarise(topic)
            await file(topic)
        else:
            run.state["conclusion"] = await conclude(run.state["sales"], run.state["costs"])

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan("Report", ["Summarise sales", "Summarise costs", "Conclude"])
        await run.todo.each(work)

    return main


def correct(folder: str, was: str, now: str) -> None:
    """In the files of steps/, as a person does it."""
    (path,) = (path for path in Path(folder, "steps").rglob("*.json") if was in path.read_text())
    path.write_text(path.read_text().replace(was, now))


@pytest.mark.parametrize("how", ["fork", "rewind"])
def test_more_than_what_depended_on_a_hallucination_is_done_again(make: Make, how: str) -> None:
    calls: Calls = []
    first = satchel.open(make())
    main = reporting(calls)
    assert first.run(main).status == "completed"
    (seq,) = (
        row.line.seq for row in first.history.log(type="step.completed", item="1") if row.record["step"] == "summarise"
    )
    handle = first
    if how == "fork":
        handle = satchel.open(first.history.fork(Path(first.url).parent / "corrected", at=seq, reuse=True).to)
    else:
        first.history.rewind(to=seq, reuse=True)
    correct(handle.url, "sales grew by 40%", "sales grew by 4%")
    calls.clear()
    ended = handle.resume(main)
    assert ended.status == "completed" and calls == ["conclude"], ended.error
    assert data(handle)["conclusion"] == "As sales grew by 4% and costs fell by 2%, we hire." and is_sound(handle)
    if how == "fork":
        assert "40%" in data(first)["conclusion"]


class Graph:
    """Calls that depend on the results of earlier calls, spread over items. Values are few, so a change may die out."""

    def __init__(self, choose: random.Random):
        self.size = choose.randint(3, 9)
        self.needs = {n: sorted(choose.sample(range(n), min(n, choose.randint(0, 2)))) for n in range(self.size)}
        cuts = sorted(choose.sample(range(1, self.size), choose.randint(0, min(3, self.size - 1))))
        self.items = [range(a, b) for a, b in zip([0, *cuts], [*cuts, self.size], strict=True)]

    def items_end(self, node: int) -> int:
        """The first call after the item of this one."""
        return next(item.stop for item in self.items if node in item)

    def value(self, node: int, inputs: list[int]) -> int:
        return (node + sum(inputs)) % 3

    def values(self, given: Mapping[int, int]) -> dict[int, int]:
        """All results, if some are `given`."""
        found: dict[int, int] = {}
        for node, needs in self.needs.items():
            found[node] = given[node] if node in given else self.value(node, [found[each] for each in needs])
        return found

    def redone(self, was: Mapping[int, int], now: Mapping[int, int], given: Mapping[int, int]) -> set[int]:
        """The oracle: the calls whose arguments differ."""
        differ = {node for node, needs in self.needs.items() if any(was[each] != now[each] for each in needs)}
        return differ - given.keys()

    def agent(self, calls: list[int]) -> Any:
        @step
        async def node(number: int, inputs: list[int]) -> int:
            calls.append(number)
            return self.value(number, inputs)

        async def work(run: Run[Any], item: Item) -> None:
            for number in self.items[int(item.text)]:
                inputs = [run.state[str(each)] for each in self.needs[number]]
                run.state[str(number)] = await node(number, inputs)

        @agent
        async def main(run: Run[Any]) -> None:
            if not run.todo.items:
                await run.plan(None, [str(number) for number in range(len(self.items))])
            await run.todo.each(work)

        return main


def edit(handle: Handle, number: int, value: int) -> None:
    for path in Path(handle.url, "steps").rglob("*.json"):
        document = json.loads(path.read_text())
        if document["call"].split('"number":')[1].rstrip(")") == str(number):
            document["result"] = value
            path.write_text(json.dumps(document, indent=2) + "\n")
            return
    raise AssertionError(f"no file of call {number}")


@pytest.mark.parametrize(
    "many, part", [(6, 0), *(pytest.param(50, part, marks=pytest.mark.slow) for part in range(2 * ROUNDS))]
)
def test_an_edited_result_runs_more_or_less_than_what_depends_on_it(make: Make, many: int, part: int) -> None:
    first = seed() + part * many
    for number in range(many):
        choose, calls = random.Random(first + number), list[int]()
        graph = Graph(choose)
        main, handle = graph.agent(calls), satchel.open(make(name=f"g{number}"))
        assert handle.run(main).status == "completed" and calls == [*range(graph.size)]
        was = graph.values({})
        rows = [row.record for row in handle.history.log(type="step.completed")]
        node = choose.randrange(graph.size)
        seq = int(rows[choose.randrange(node, graph.items_end(node))]["seq"])
        if number % 2:
            handle = satchel.open(handle.history.fork(Path(handle.url).parent / f"f{number}", at=seq, reuse=True).to)
        else:
            handle.history.rewind(to=seq, reuse=True)
        given = {node: choose.choice([value for value in range(4) if value != was[node]])}
        edit(handle, node, given[node])
        calls.clear()
        ended = handle.resume(main)
        now = graph.values(given)
        assert ended.status == "completed", ended.error
        assert data(handle) == {str(each): value for each, value in now.items()}
        assert sorted(calls) == sorted(graph.redone(was, now, given)), (graph.needs, graph.items, node, given, seq)
