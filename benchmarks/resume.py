"""The time from opening a workspace with a long history to the first new step.

In a child, `prepare KIND COUNT STOP FOLDER` works and then stops itself; `measure KIND COUNT FOLDER` resumes and prints
the seconds.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from satchel import Agent, Item, Run, agent, run, step
from satchel.workspace.store.disk_store import DISPLACED

from .measuring import Ground, Result, await_stopped, check_paused, child, sizes, spread, stop_itself

_LIMIT = 0.150
_STOPS = {"clean": "a clean stop", "kill": "a SIGKILL"}


def measure(ground: Ground) -> Iterator[Result]:
    count = ground.pick(10_000, 2_000)
    for kind in ("steps", "items"):
        for stop, words in _STOPS.items():
            workspace = ground.workspace("resume")
            await_stopped(child("resume", "prepare", kind, count, stop, workspace), stop)
            times = [_resumed(_copy(ground, workspace), kind, count) for _ in range(ground.pick(7, 3))]
            yield Result(
                f"resume after {words} and {count:,} {kind}",
                "time",
                "at most 150 ms",
                median(times),
                _LIMIT,
                f"{spread(times, 1e3)} ms",
                str(sizes(workspace)),
            )


def _copy(ground: Ground, workspace: Path) -> Path:
    """Without what was displaced in the last minute: in a copy each is compared, while at the original place its inode
    shows that it is unchanged."""
    copy = ground.copy(workspace)
    shutil.rmtree(copy / DISPLACED, ignore_errors=True)
    return copy


def _resumed(workspace: Path, kind: str, count: int) -> float:
    process = child("resume", "measure", kind, count, workspace)
    out, _ = process.communicate()
    return float(out)


# In the child


@step
async def old(number: int) -> int:
    return number


def _agent(kind: str, count: int, reached: Callable[[], Any]) -> Agent:
    """An agent that calls `reached` after `count` steps or items."""

    async def new() -> None:  # no step: a stop does not wait for it
        await reached()

    async def steps(run: Run[Any], item: Item) -> None:
        for number in range(count):
            await old(number)
        await new()

    async def items(run: Run[Any], item: Item) -> None:
        if item.text == "the last":
            await new()

    @agent
    async def benchmark(run: Run[Any]) -> None:
        if not run.todo.items:
            before = [] if kind == "steps" else [f"item {number:06d}" for number in range(count)]
            await run.plan("Benchmark", [*before, "the last"])
        await run.todo.each(steps if kind == "steps" else items)

    return benchmark


def _prepare(kind: str, count: int, stop: str, folder: str) -> None:
    async def reached() -> None:
        await stop_itself(stop)

    check_paused(run(folder, _agent(kind, count, reached)))


def _measure(kind: str, count: int, folder: str) -> None:
    async def nothing() -> None:
        pass

    async def reached() -> None:
        print(time.perf_counter() - began, flush=True)
        os._exit(0)

    # What is imported only when it is needed is imported now: a small run in a workspace of its own.
    small = f"{folder}-small"
    os.mkdir(small)
    Path(small, "workspace.yaml").write_bytes(Path(folder, "workspace.yaml").read_bytes())
    run(small, _agent(kind, 1, nothing))

    began = time.perf_counter()
    outcome = run(folder, _agent(kind, count, reached), adopt=True)
    raise RuntimeError(f"it never came to the new step: {outcome.error}")


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        _prepare(sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])
    else:
        _measure(sys.argv[2], int(sys.argv[3]), sys.argv[4])
