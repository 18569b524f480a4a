"""Whether a step costs the same at the end of a long run as at its beginning, in time and on the disk."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any

from satchel import Item, Run, agent, run, step

from .measuring import Beside, Ground, Result, Sizes, last_record, sizes, spread

_EARLY, _LATE = 100, 10_000
_RESULT_BYTES = 200


@step
async def answer(number: int) -> str:
    return "x" * (_RESULT_BYTES - 2)


def measure(ground: Ground) -> Iterator[Result]:
    yield from _steps(ground)
    yield from _items(ground)


def _steps(ground: Ground) -> Iterator[Result]:
    window = ground.pick(400, 200)
    found = [_Steps(ground, window) for _ in range(ground.pick(3, 1))]
    times = [each.ratio(median) for each in found]
    means = [each.ratio(fmean) for each in found]
    yield Result(
        f"step {_LATE:,} over step {_EARLY}",
        "time",
        "at most 1.2, in syncs next to it",
        median(times),
        1.2,
        f"{spread(times)} times",
        f"means of {window} steps: {spread(means)}",
    )
    last = found[-1]
    late, early = last.bytes_a_step("late"), last.bytes_a_step("early")
    yield Result(
        "its bytes in the journal",
        "bytes",
        "at most 1.2",
        late / early,
        1.2,
        f"{late / early:.3f} times",
        f"{late:.1f} over {early:.1f} bytes",
    )
    yield Result(
        f"a {_RESULT_BYTES}-byte result in the journal",
        "bytes",
        "at most 600 bytes",
        late,
        600,
        f"{late:.0f} bytes",
        f"step {_LATE:,}",
    )
    for when, at in (("while running", last.running), ("after a clean stop", last.stopped)):
        each = at.all / last.steps
        yield Result(
            f"in all files, {when}", "bytes", "", each, None, f"{each:.0f} bytes a step", f"{last.steps:,} steps: {at}"
        )


class _Steps:
    """One run of a little more than 10,000 steps in one scope. Two stretches of it are measured."""

    def __init__(self, ground: Ground, window: int):
        self.steps = _LATE + window
        self.pairs: dict[str, list[tuple[float, float]]] = {"early": [], "late": []}
        self.journal: dict[str, tuple[int, int]] = {}
        self._workspace, self._beside, self._window = ground.workspace("growth"), Beside(ground.folder), window
        _run(self._workspace, self._call_all)
        self.stopped = sizes(self._workspace)

    def ratio(self, middle: Any) -> float:
        late, early = (self._in_syncs(self.pairs[when], middle) for when in ("late", "early"))
        return late / early

    def bytes_a_step(self, when: str) -> float:
        before, after = self.journal[when]
        return (after - before) / self._window

    def _in_syncs(self, pairs: list[tuple[float, float]], middle: Any) -> float:
        return float(middle([step for step, _ in pairs]) / median(sync for _, sync in pairs))

    async def _call_all(self) -> None:
        for number in range(_EARLY):
            await answer(number)
        await self._stretch("early", _EARLY)
        for number in range(_EARLY + self._window, _LATE):
            await answer(number)
        await self._stretch("late", _LATE)
        self.running = sizes(self._workspace)

    async def _stretch(self, when: str, first: int) -> None:
        record, before = last_record(self._workspace), sizes(self._workspace).journal
        for number in range(first, first + self._window):
            began = time.perf_counter()
            await answer(number)
            between = time.perf_counter()
            self._beside.append(record)
            self.pairs[when].append((between - began, time.perf_counter() - between))
        self.journal[when] = before, sizes(self._workspace).journal


def _items(ground: Ground) -> Iterator[Result]:
    """1,000 items, each changes one of the values of a state of 2 KB."""
    count = ground.pick(1000, 400)
    at: list[Sizes] = []
    workspace = ground.workspace("items")

    async def work(run: Run[Any], item: Item) -> None:
        number = int(item.text.split()[1])
        run.state[f"value {number % 20:02d}"] = f"{number:06d}" + "x" * 84
        await answer(number)
        if number % (count // 4) == 0:
            at.append(sizes(workspace))

    @agent
    async def benchmark(run: Run[Any]) -> None:
        await run.scope("fill", _fill, run)
        await run.plan("Benchmark", [f"item {number:06d}" for number in range(count + 1)])
        await run.todo.each(work)

    outcome = run(workspace, benchmark)
    if outcome.error:
        raise outcome.error
    first, second = at[2].all - at[0].all, at[4].all - at[2].all
    yield Result(
        f"{count:,} items, state of 2 KB: second half over first",
        "bytes",
        "linear: at most 1.1",
        second / first,
        1.1,
        f"{second / first:.3f} times",
        f"{second / (count / 2):.0f} bytes an item: {at[4]}",
    )
    stopped = sizes(workspace)
    yield Result(
        "after a clean stop",
        "bytes",
        "",
        stopped.all / count,
        None,
        f"{stopped.all / count:.0f} bytes an item",
        str(stopped),
    )


async def _fill(run: Run[Any]) -> None:
    for number in range(20):
        run.state[f"value {number:02d}"] = "x" * 90


def _run(workspace: Path, function: Any) -> None:
    @agent
    async def benchmark(run: Run[Any]) -> None:
        await run.scope("calls", function)

    outcome = run(workspace, benchmark)
    if outcome.error:
        raise outcome.error
