"""The cost of a pipelined step, compared with a strict one of the same run, and its cost after many."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from satchel import Run, agent, effect, run, step

from .measuring import Beside, Ground, Result, last_record, spread

_A_SECOND = 10_000
_RESULT_BYTES = 200


@step
async def answer(number: int) -> str:
    return "x" * (_RESULT_BYTES - 2)


@effect
async def act(number: int) -> None: ...


def measure(ground: Ground) -> Iterator[Result]:
    rounds, calls = ground.pick(7, 3), ground.pick(10_000, 5_000)
    workspace, beside = ground.workspace("pipelined"), Beside(ground.folder)
    pipelined: list[float] = []
    strict: list[float] = []
    syncs: list[float] = []

    @agent
    async def strictly(run: Run[Any], first: int) -> None:
        for number in range(first, first + calls // 20):
            began = time.perf_counter()
            await answer(number)
            between = time.perf_counter()
            beside.append(record)
            strict.append(between - began)
            syncs.append(time.perf_counter() - between)

    async def in_rounds(run: Run[Any]) -> None:
        nonlocal record
        for number in range(rounds):
            began = time.perf_counter()
            for each in range(number * calls, (number + 1) * calls):
                await answer(each)
            await run.output("round.txt", str(number))  # waits until all of them are durable
            pipelined.append((time.perf_counter() - began) / calls)
            record = last_record(workspace)
            await run.spawn(strictly, f"strict{number}", number * calls)

    record = b""
    _run(workspace, in_rounds)
    rate = 1 / median(pipelined)
    yield Result(
        "a pipelined step",
        "time",
        f"at most 100 µs ({_A_SECOND:,} a second)",
        median(pipelined),
        1 / _A_SECOND,
        f"{spread(pipelined, 1e6)} µs",
        f"{rate:,.0f} a second; {rounds} rounds of {calls:,}, until durable",
    )
    share = median(pipelined) / median(strict)
    yield Result(
        "the same, over a strict step in the same run",
        "time",
        "at most 0.5",
        share,
        0.5,
        f"{share:.3f} times",
        f"strict step {median(strict) * 1e6:.3g} µs, sync {median(syncs) * 1e6:.3g} µs",
    )
    yield _late_over_early(ground)
    yield _with_effects(ground)


def _late_over_early(ground: Ground) -> Result:
    """Whether the 100,000th costs the same as the 10,000th."""
    window, last = 5_000, ground.pick(100_000, 40_000)
    times: list[float] = []

    async def many(run: Run[Any]) -> None:
        for first in range(0, last + window, window):
            began = time.perf_counter()
            for number in range(first, first + window):
                await answer(number)
            times.append((time.perf_counter() - began) / window)

    _run(ground.workspace("many"), many)
    early, late = median(times[1:4]), median(times[-3:])
    return Result(
        f"step {last:,} over step {2 * window:,}",
        "time",
        "at most 1.5",
        late / early,
        1.5,
        f"{late / early:.2f} times",
        f"{late * 1e6:.3g} over {early * 1e6:.3g} µs, checkpoints included",
    )


def _with_effects(ground: Ground) -> Result:
    """An effect for every 100 steps: it waits for the records of all of them."""
    effects = ground.pick(100, 30)
    times: list[float] = []

    async def mixed(run: Run[Any]) -> None:
        began = time.perf_counter()
        for number in range(effects):
            for each in range(100):
                await answer(100 * number + each)
            await act(number)
        times.append((time.perf_counter() - began) / (101 * effects))

    _run(ground.workspace("mixed"), mixed)
    return Result(
        "with an effect after every 100",
        "time",
        "",
        times[0],
        None,
        f"{times[0] * 1e6:.3g} µs",
        f"a call, of {effects} effects and {100 * effects:,} steps",
    )


def _run(workspace: Path, function: Callable[[Run[Any]], Awaitable[None]]) -> None:
    @agent(durability="pipelined")
    async def benchmark(run: Run[Any]) -> None:
        await run.scope("calls", function, run)

    outcome = run(workspace, benchmark)
    if outcome.error:
        raise outcome.error
