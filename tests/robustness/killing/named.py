"""The same twenty pieces of work as named scopes of several tasks; the first is one of the agent's own task."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import killing
from satchel import Run, agent

from . import items, parallel


def make_agent(outside: Path) -> Any:
    work = items.make_work(outside)

    @agent(state=items.State)
    async def main(run: Run[items.State]) -> Any:
        async def in_own_scope(number: int) -> Any:
            name = f"item number {number}"
            return (await run.scope(name, work, run, SimpleNamespace(text=name)))["line"]

        others = [asyncio.create_task(in_own_scope(number)) for number in range(1, items.ITEMS)]
        return [await in_own_scope(0), *await asyncio.gather(*others)]

    return main


SUBJECT = killing.Subject(make_agent, parallel.result)
