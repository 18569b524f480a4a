"""How long the event loop of a `Pool` of many runs keeps others waiting, over an idle loop in a process next to it.

`python -m benchmarks.shared` is that idle loop: it prints its lags when its stdin ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median, quantiles

import satchel
from satchel import Item, Run, agent, step

from .measuring import Ground, Result, child

_RUNS = 50
_TICK = 0.01


@step
async def answer(number: int) -> str:
    await asyncio.sleep(0.5)  # of a model
    return "x" * 198


@agent
async def main(run: Run[dict[str, str]]) -> None:
    if not run.todo.items:
        await run.plan(None, [str(number) for number in range(run.settings["steps"])])
    await run.todo.each(_work)


async def _work(run: Run[dict[str, str]], item: Item) -> None:
    run.state[item.text] = await answer(int(item.text))


def measure(ground: Ground) -> Iterator[Result]:
    steps = ground.pick(20, 5)
    root = ground.workspace("shared")
    (root / "workspace.yaml").unlink()
    for number in range(_RUNS):
        folder = root / f"run-{number}"
        folder.mkdir()
        text = f"format: 1\nrun_id: run-{number}\nagent: none.py:main\nsettings: {{steps: {steps}}}\n"
        (folder / "workspace.yaml").write_text(text)

    beside = child("shared")
    lags: list[float] = []

    async def work() -> None:
        is_over = False
        ticking = asyncio.create_task(_tick(lags, lambda: is_over))
        async with satchel.Pool(root, main, at_most=_RUNS) as pool:
            await pool.wait()
        is_over = True
        await ticking

    began = time.process_time()
    asyncio.run(work())
    cpu = (time.process_time() - began) / _RUNS
    idle = json.loads(beside.communicate("")[0])
    yield Result(
        f"{_RUNS} runs on one loop: lag p99 over an idle loop's",
        "time",
        "at most 50 ms",
        (_p99(lags) - _p99(idle)) * 1e3,
        50,
        f"{(_p99(lags) - _p99(idle)) * 1e3:.3g} ms",
        f"lag p99 {_p99(lags) * 1e3:.3g} ms, median {median(lags) * 1e3:.2g} ms; idle {_p99(idle) * 1e3:.3g} ms; "
        f"{cpu:.3g} s of CPU a run of {steps} items",
    )


def _p99(lags: list[float]) -> float:
    return quantiles(lags, n=100)[-1]


async def _tick(lags: list[float], is_over: Callable[[], bool]) -> None:
    while not is_over():
        began = time.perf_counter()
        await asyncio.sleep(_TICK)
        lags.append(time.perf_counter() - began - _TICK)


async def _idle() -> list[float]:
    lags: list[float] = []
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await _tick(lags, ended.done)
    return lags


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_idle())))
