"""Twenty items, most of two steps and an effect: each effect is there exactly once, and each change of the state."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import killing
from satchel import NotDone, Run, agent, effect, step
from satchel.workspace.base.stamp import read_markdown

ITEMS = 20


@dataclass
class State:
    lengths: dict[str, int] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    count: int = 0


@dataclass(frozen=True)
class Receipt:
    text: str
    line: int


def make_work(outside: Path) -> Any:
    @step
    async def measure(text: str) -> int:
        return len(text)

    @step
    def shout(text: str) -> str:
        return text.upper()

    def find(text: str) -> Receipt:
        lines = outside.read_text().splitlines() if outside.exists() else []
        if text not in lines:
            raise NotDone
        return Receipt(text, lines.index(text))

    @effect(verify=find)
    def append(text: str) -> Receipt:
        killing.tick()
        with outside.open("a") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        killing.tick()
        return find(text)

    async def work(run: Run[State], item: Any) -> dict[str, Any]:
        before = run.state.count  # in parallel each item contradicts the others
        if item.text.endswith("5"):  # nothing of it waits for the storage, and its commit travels with the next item's
            run.state.order.append(item.text)
            run.state.count = before + 1
            run.messages.add("agent", f"noted {item.text}")
            return {"line": len(run.state.order)}
        length = await measure(item.text)
        loud = await shout(item.text)
        receipt = await append(loud)
        run.state.lengths[item.text] = length
        run.state.order.append(receipt.text)
        run.state.count = before + 1
        run.messages.add("agent", f"did {item.text}")
        if item.text.endswith("7"):
            await run.output(f"{item.text}.txt", loud)
        return {"loud": loud, "line": receipt.line}

    return work


def make_agent(outside: Path, parallel: int = 1) -> Any:
    work = make_work(outside)

    @agent(state=State)
    async def main(run: Run[State]) -> None:
        if not run.todo.items:
            await run.plan("Work", [f"item number {i}" for i in range(ITEMS)])
        await run.todo.each(work, parallel=parallel)

    return main


def result(folder: Path, outside: Path) -> dict[str, Any]:
    """All that a run leaves and that must not depend on when it was killed."""
    state = json.loads((folder / "state.json").read_text())
    todo = folder / "todo.md"
    messages = [json.loads(line) for line in (folder / "messages.jsonl").read_text().splitlines()]
    return {
        "effects": outside.read_text().splitlines(),
        "todo": read_markdown(todo.read_bytes()).body.decode() if todo.exists() else "",
        "data": state["data"],
        "status": state["status"],
        "usage": state["usage"]["items"],
        "messages": [(message["role"], message["content"]) for message in messages],
        "outputs": {path.name: path.read_text() for path in sorted((folder / "outputs").iterdir())},
        "left over": sorted(
            str(path.relative_to(folder))
            for name in ("partials", "steps", ".satchel/tmp")
            for path in (folder / name).rglob("*")
        ),
    }


SUBJECT = killing.Subject(make_agent, result)
