"""One of the processes that fight: runs the agent over a URL until the run is over, whoever gets there first.

Anything that only means that another process has the run, or that the bucket can't be reached, makes it try again.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
import urllib.request
from typing import Any

import s3fs  # noqa: F401  # it takes a second, once for all that are forked from here
from waits import PATIENCE

import satchel
from satchel import Item, Run, agent, effect, step
from satchel.workspace.base.errors import LeaseHeld, StorageFailed
from satchel.workspace.store import open_store

ITEMS = 6
COMPLETED, WAITING = 0, 4


def run(url: str, options: dict[str, Any], deliveries: str, seed: int) -> None:
    """Exits with COMPLETED, or with WAITING when a person is needed."""
    choose = random.Random(seed)

    @step
    async def prepare(item: str) -> str:
        await asyncio.sleep(choose.uniform(0, 0.05))
        return f"parcel for {item}"

    @effect
    async def deliver(parcel: str) -> str:
        await asyncio.sleep(choose.uniform(0, 0.1))
        receipt = await asyncio.to_thread(_post, deliveries, parcel)
        await asyncio.sleep(choose.uniform(0, 0.1))
        return receipt

    async def work(run: Run[Any], item: Item) -> None:
        parcel = await prepare(item.text)
        run.state.setdefault("delivered", []).append(await deliver(parcel))

    @agent
    async def fighter(run: Run[Any]) -> int:
        if not run.todo.items:
            await run.plan("Deliver", [f"house {number}" for number in range(ITEMS)])
        await run.todo.each(work)
        return len(run.state["delivered"])

    while True:
        try:
            outcome = satchel.run(open_store(url, options), fighter)
        except (LeaseHeld, StorageFailed):
            time.sleep(choose.uniform(0.02, 0.3))
            continue
        if outcome.error is not None and outcome.status != "paused":  # stuck after three crashes
            raise outcome.error
        sys.exit(COMPLETED if outcome.status == "completed" else WAITING)


def _post(url: str, parcel: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, data=parcel.encode()), timeout=PATIENCE) as answer:
        return str(answer.read().decode())
