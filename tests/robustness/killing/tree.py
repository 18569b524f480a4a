"""The work is done by grandchildren, two of them at once: no step is done twice, nothing is asked."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import killing
from killing.items import Receipt
from satchel import NotDone, Partial, Run, agent, effect, step
from satchel.workspace.base.stamp import read_markdown

BRANCHES, ITEMS = ("left", "right"), 3


def make_agent(outside: Path) -> Any:
    @step
    async def measure(text: str) -> int:
        await asyncio.sleep(0)
        return len(text)

    @step
    async def write(text: str, out: Partial) -> str:
        for at in range(len(out.text), len(text)):
            await out.write(text[at])
        return out.text

    def find(text: str) -> Receipt:
        lines = outside.read_text().splitlines() if outside.exists() else []
        if text not in lines:
            raise NotDone
        return Receipt(text, 0)

    @effect(verify=find)
    async def append(text: str) -> Receipt:
        killing.tick()
        with outside.open("a") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        killing.tick()
        await asyncio.sleep(0)
        return find(text)

    async def work(run: Run[Any], item: Any) -> str:
        written = await write(f"{run.agent} writes {item.text}")
        await append(written)
        run.state[item.text] = await measure(written)
        await run.output(f"{item.text}.txt", written)
        return written

    @agent
    async def reader(run: Run[Any], topic: str) -> list[str]:
        if not run.todo.items:
            await run.plan(None, [f"{topic} {number}" for number in range(ITEMS)])
        await run.todo.each(work)
        return [run.todo.result(item) for item in run.todo.items]

    async def read(run: Run[Any], topic: str) -> list[str]:
        found: list[str] = await run.spawn(reader, "reader", topic)
        run.state["read"] = len(found)
        return found

    @agent
    async def branch(run: Run[Any], topic: str) -> list[str]:
        await append(f"{run.agent} begins")
        return await run.scope("read", read, run, topic)

    async def both(run: Run[Any]) -> list[list[str]]:
        return list(await asyncio.gather(*(run.spawn(branch, name, f"about {name}") for name in BRANCHES)))

    @agent
    async def main(run: Run[Any]) -> Any:
        return await run.scope("both", both, run)

    return main


def result(folder: Path, outside: Path) -> dict[str, Any]:
    """All that a run leaves and that must not depend on when it was killed."""
    records = [
        json.loads(line) for path in sorted(folder.glob("journal/*.jsonl")) for line in path.read_text().splitlines()
    ]
    assert not [record for record in records if record["type"] == "doubt"], "nothing is asked"
    done = Counter(
        (record.get("agent"), record["scope"], record["step"], record["args"], record["n"])
        for record in records
        if record["type"] == "step.completed"
    )
    assert set(done.values()) == {1}, "nothing is done twice"
    # The folders of the last checkpoints are named after records, whose numbers depend on the kills.
    current = [path for path in sorted(folder.rglob("*")) if path.relative_to(folder).parts[0] != "checkpoints"]
    states = {
        path: json.loads(path.read_text())
        for path in current
        if path.name == "state.json" and "schemas" not in str(path)
    }
    return {
        "effects": sorted(outside.read_text().splitlines()),
        "states": {
            str(path.relative_to(folder)): (state["status"], state["data"], state["open"])
            for path, state in states.items()
        },
        "todo": {
            str(path.relative_to(folder)): read_markdown(path.read_bytes()).body.decode()
            for path in current
            if path.name == "todo.md"
        },
        "outputs": {
            str(path.relative_to(folder)): path.read_text() for path in sorted(folder.glob("agents/**/outputs/*"))
        },
        "left over": sorted(
            str(path.relative_to(folder))
            for name in ("partials", "steps")
            for path in folder.rglob(f"{name}/*/*")
            if "_agent" not in str(path)  # the agent's own calls stay open
        ),
    }


SUBJECT = killing.Subject(make_agent, result)
