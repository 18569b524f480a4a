"""Agents that run items in parallel, and what their runs leave."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from satchel import Run, agent
from satchel.workspace import journal
from satchel.workspace.store import DiskStore

_ITEM = re.compile(r" *- \[(.)\] (.*?)(?: \^\w+)?\Z")


def make(work: Any, *items: str, parallel: int = 8, state: Any = dict, begin: Any = None) -> Any:
    """`begin` gives the state its first values."""

    @agent(state=state)
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            if begin:
                await run.scope("begin", begin, run)
            await run.plan("Work", items)
        await run.todo.each(work, parallel=parallel)

    return main


class Together:
    """A place where all wait until so many have come. Later ones pass."""

    def __init__(self, count: int):
        self._missing, self._all = count, asyncio.Event()

    async def meet(self) -> None:
        self._missing -= 1
        if self._missing <= 0:
            self._all.set()
        await self._all.wait()


def data_of(workspace: Path) -> Any:
    return json.loads((workspace / "state.json").read_text())["data"]


def marks(workspace: Path) -> list[tuple[str, str]]:
    """The items of the plan with their marks, without their ids."""
    lines = (workspace / "todo.md").read_text().splitlines()
    return [(match[2], match[1]) for line in lines if (match := _ITEM.fullmatch(line))]


def records(workspace: Path, *kinds: Any) -> list[Any]:
    lines = journal.read(DiskStore(workspace), after=0).lines
    return [line.record for line in lines if isinstance(line.record, kinds)]
