"""The cost of a strict step, in syncs of the same bytes made next to it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from satchel import Run, agent, run, step
from satchel.workspace.store import DiskStore

from .measuring import Beside, CountedSyscalls, Ground, Result, last_record, spread

_CONCURRENT = 100


@step
async def answer(number: int) -> str:
    return "x" * 198  # 200 bytes of JSON


@step
async def answer_after(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "x" * 198


@step
def answer_in_a_thread(number: int) -> str:
    return "x" * 198


def measure(ground: Ground) -> Iterator[Result]:
    yield from _one_after_another(ground)
    yield from _concurrent(ground)


def _one_after_another(ground: Ground) -> Iterator[Result]:
    workspace, beside = ground.workspace("steps"), Beside(ground.folder)
    rounds, calls = ground.pick(7, 3), ground.pick(400, 150)
    steps: list[list[float]] = []
    syncs: list[list[float]] = []

    async def one_round(first: int) -> None:
        record = last_record(workspace)
        steps.append([])
        syncs.append([])
        for number in range(first, first + calls):
            began = time.perf_counter()
            await answer(number)
            between = time.perf_counter()
            beside.append(record)
            ended = time.perf_counter()
            steps[-1].append(between - began)
            syncs[-1].append(ended - between)

    async def all_rounds() -> None:
        for number in range(50):
            await answer(-number)
        for number in range(rounds):
            await one_round(number * calls)

    _run(workspace, all_rounds)
    middle = [median(step) / median(sync) for step, sync in zip(steps, syncs, strict=True)]
    mean = [fmean(step) / fmean(sync) for step, sync in zip(steps, syncs, strict=True)]
    took = [median(times) * 1e6 for times in steps]
    beside_it = [median(times) * 1e6 for times in syncs]
    yield Result(
        "a strict step",
        "time",
        "at most 2.5 appends + fdatasyncs (aim: 1.5)",
        median(middle),
        2.5,
        f"{spread(middle)} syncs",
        f"step {spread(took)} µs, sync {spread(beside_it)} µs",
    )
    yield Result(
        "the same, mean",
        "time",
        "at most 2.5, projections written meanwhile included",
        median(mean),
        2.5,
        f"{spread(mean)} syncs",
        f"{rounds} rounds of {calls} pairs",
    )


def _concurrent(ground: Ground) -> Iterator[Result]:
    delays = random.Random(1)
    kinds: dict[str, Any] = {
        "at once": lambda number: answer(number),
        "after 10 ms each": lambda number: answer_after(0.01 + number * 1e-9),
        "after 0 to 50 ms": lambda number: answer_after(delays.random() / 20),
        "in threads": lambda number: answer_in_a_thread(number),
    }
    for kind, call in kinds.items():
        found = [_gather(ground, call) for _ in range(ground.pick(5, 2))]
        worst = max(found, key=lambda each: each.journal + each.others)
        syncs = worst.journal + worst.others
        is_target = kind in ("at once", "after 10 ms each")
        yield Result(
            f"{_CONCURRENT} concurrent steps, {kind}",
            "count",
            "at most 10 syncs" if is_target else "",
            syncs,
            10 if is_target else None,
            f"{syncs} syncs",
            f"{worst.journal} of the journal, {worst.others} of other files; "
            f"{spread([each.seconds for each in found], 1e3)} ms in all",
        )


class _Gathered(NamedTuple):
    """Syncs and seconds of 100 calls, including readable files written meanwhile."""

    journal: int
    others: int
    seconds: float


def _gather(ground: Ground, call: Any) -> _Gathered:
    syscalls = CountedSyscalls()
    found = _Gathered(0, 0, 0)

    async def all_at_once() -> None:
        nonlocal found
        await answer(-1)
        journal, others, began = syscalls.journal, syscalls.others, time.perf_counter()
        await asyncio.gather(*(call(number) for number in range(_CONCURRENT)))
        seconds = time.perf_counter() - began
        found = _Gathered(syscalls.journal - journal, syscalls.others - others, seconds)

    _run(DiskStore(ground.workspace("concurrent"), syscalls), all_at_once)
    return found


def _run(workspace: Path | DiskStore, function: Any) -> None:
    @agent
    async def benchmark(run: Run[Any]) -> None:
        await run.scope("calls", function)

    outcome = run(workspace, benchmark)
    if outcome.error:
        raise outcome.error
