"""The graph of `graph`, with `SatchelSaver`: no checkpoint or write that it has acknowledged is lost or torn."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial as bind
from pathlib import Path
from typing import Any

import killing
from killing import graph
from satchel.adapters.langgraph import SatchelSaver


class Noting(SatchelSaver):
    """Notes outside what it has acknowledged."""

    def __init__(self, outside: Path):
        super().__init__(outside.with_suffix(".threads"))
        self._acknowledged = outside.with_suffix(".acknowledged")

    def _note(self, *words: Any) -> None:
        with self._acknowledged.open("a") as file:
            file.write(json.dumps(words) + "\n")
        killing.tick()

    async def aput(self, config: Any, checkpoint: Any, *rest: Any) -> Any:
        found = await super().aput(config, checkpoint, *rest)
        self._note("put", checkpoint["id"], len(checkpoint["channel_values"].get("messages", ())))
        return found

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        await super().aput_writes(config, writes, task_id, task_path)
        self._note("writes", config["configurable"]["checkpoint_id"], task_id, len(writes))


@asynccontextmanager
async def kept(outside: Path) -> AsyncIterator[SatchelSaver]:
    saver = Noting(outside)
    try:
        yield saver
    finally:
        saver.close()


def wrong(folder: Path, outside: Path) -> str:
    found = {each.checkpoint["id"]: each for each in SatchelSaver(outside.with_suffix(".threads")).list(None)}
    acknowledged = outside.with_suffix(".acknowledged")
    for line in acknowledged.read_text().splitlines() if acknowledged.exists() else ():
        kind, id, *told = json.loads(line)
        there = found.get(id)
        if there is None and kind == "put":
            return f"the checkpoint {id} is lost: {line}"
        if there is None:  # LangGraph keeps writes before their checkpoint, too
            continue
        if kind == "put" and len(there.checkpoint["channel_values"].get("messages", ())) != told[0]:
            return f"the checkpoint {id} is another one: {line}"
        if kind == "writes" and sum(task == told[0] for task, _, _ in there.pending_writes or ()) != told[1]:
            return f"writes of {id} are lost: {line}"
    return graph.wrong(folder, outside)


SUBJECT = killing.Subject(bind(graph.make_agent, kept), graph.result, wrong=wrong)
