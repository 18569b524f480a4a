"""What 1,000 items of a 50 ms step cost if 50 run at once, beyond the time of their steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from satchel import Item, Run, agent, run, step

from .measuring import Ground, Result, spread

_SECONDS, _AT_ONCE, _VALUES = 0.05, 50, 20


@step
async def wait(number: int) -> str:
    await asyncio.sleep(_SECONDS)
    return f"{number:06d}" + "x" * 84


def measure(ground: Ground) -> Iterator[Result]:
    count = ground.pick(1000, 400)
    took = [_more(ground, count) for _ in range(ground.pick(3, 1))]
    own = _SECONDS * count / _AT_ONCE
    yield Result(
        f"{count:,} items, {_AT_ONCE} at once, over their own time",
        "time",
        "at most 1.3 s more",
        median(took),
        1.3,
        f"{spread(took)} s more",
        f"their own time: {own:.1f} s",
    )


def _more(ground: Ground, count: int) -> float:
    """Each changes one of the values of a state of 2 KB."""
    took = 0.0

    async def fill(run: Run[Any]) -> None:
        for number in range(_VALUES):
            run.state[f"value {number:02d}"] = "x" * 90

    async def work(run: Run[Any], item: Item) -> None:
        number = int(item.text.split()[1])
        run.state[f"value {number % _VALUES:02d}"] = await wait(number)

    @agent
    async def benchmark(run: Run[Any]) -> None:
        nonlocal took
        await run.scope("fill", fill, run)
        await run.plan("Benchmark", [f"item {number:06d}" for number in range(count)])
        began = time.perf_counter()
        await run.todo.each(work, parallel=_AT_ONCE)
        took = time.perf_counter() - began

    outcome = run(ground.workspace("parallel"), benchmark)
    if outcome.error:
        raise outcome.error
    return took - _SECONDS * count / _AT_ONCE
