"""A pipelined agent. Every step returns something else whenever it runs, so what was made of a lost one can be told
from the record."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import killing
from satchel import Item, NotDone, Run, agent, effect, step

ITEMS, STEPS = 3, 30


def make_agent(outside: Path) -> Any:
    def lines() -> list[str]:
        return outside.read_text().splitlines() if outside.exists() else []

    @step
    async def draw(number: int) -> str:
        killing.tick()
        return os.urandom(8).hex()

    @step
    async def long(run: Run[Any], drawn: list[str]) -> list[str]:
        if run.saved_progress is None:
            await run.progress(drawn)
            killing.tick()
        return list(run.saved_progress)

    def find(item: str, drawn: list[str]) -> int:
        for number, line in enumerate(lines()):
            if json.loads(line)["item"] == item:
                return number
        raise NotDone

    @effect(verify=find)
    async def tell(item: str, drawn: list[str]) -> int:
        killing.tick()
        with outside.open("a") as file:
            file.write(json.dumps({"item": item, "drawn": drawn}) + "\n")
        killing.tick()
        return find(item, drawn)

    async def work(run: Run[Any], item: Item) -> list[str]:
        drawn = [await draw(number) for number in range(STEPS)]
        await run.output(f"{item.text}.json", json.dumps(drawn))
        drawn += [await draw(STEPS + number) for number in range(STEPS)]
        await tell(item.text, drawn)
        assert await long(drawn=[*drawn, await draw(-1)])  # type: ignore[call-arg]
        return drawn

    @agent(durability="pipelined")
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, [f"item {number}" for number in range(ITEMS)])
        await run.todo.each(work)

    return main


def recorded(folder: Path) -> tuple[set[str], int]:
    """All that the journal says was drawn, and how often something was."""
    rows = [row for path in sorted(folder.glob("journal/*.jsonl")) for row in path.read_bytes().split(b"\n")[:-1]]
    records = [json.loads(row) for row in rows]
    drawn = [record["result"] for record in records if record["type"] == "step.completed" and record["step"] == "draw"]
    return set(drawn), len(drawn)


def seen(folder: Path, outside: Path) -> set[str]:
    """All drawn values that anybody can have seen: in outputs and in the world outside."""
    told = [json.loads(line)["drawn"] for line in (outside.read_text().splitlines() if outside.exists() else [])]
    made = [json.loads(path.read_text()) for path in folder.glob("outputs/*.json")]
    return set(itertools.chain(*told, *made))


def wrong(folder: Path, outside: Path) -> str:
    lost = seen(folder, outside) - recorded(folder)[0]
    return f"{len(lost)} values were seen and are not on record" if lost else ""


def result(folder: Path, outside: Path) -> dict[str, Any]:
    known, count = recorded(folder)
    assert len(known) == ITEMS * (2 * STEPS + 1)
    return {
        "effects": sorted(json.loads(line)["item"] for line in outside.read_text().splitlines()),
        "steps on record": count,
    }


SUBJECT = killing.Subject(make_agent, result, wrong=wrong)
