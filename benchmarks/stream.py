"""The cost of writing a streamed answer into a file at once, and how much of it a SIGKILL loses.

In a child, `FOLDER` streams into that workspace until it is killed, and prints what it does, one line each.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from satchel import Partial, Run, agent, run, step
from satchel.workspace.store import DiskStore, Syscalls
from satchel.workspace.views import partial_files

from .measuring import Ground, Result, child, spread

_A_SECOND = 500
_TOKEN = "token "


def measure(ground: Ground) -> Iterator[Result]:
    yield from _cost(ground)
    yield from _loss(ground)


def _cost(ground: Ground) -> Iterator[Result]:
    tokens = ground.pick(2000, 500)
    ratios: list[float] = []
    shares: list[float] = []

    @step
    async def with_partial(number: int, out: Partial) -> str:
        writing = 0.0
        began = time.perf_counter()
        for _ in range(tokens):
            await asyncio.sleep(1 / _A_SECOND)
            at = time.perf_counter()
            await out.write(_TOKEN)
            writing += time.perf_counter() - at
        shares.append(writing / (time.perf_counter() - began))
        return out.text

    @step
    async def without(number: int) -> str:
        parts: list[str] = []
        for _ in range(tokens):
            await asyncio.sleep(1 / _A_SECOND)
            parts.append(_TOKEN)
        return "".join(parts)

    async def both() -> None:
        for number in range(ground.pick(4, 2)):
            began = time.perf_counter()
            await with_partial(number)
            between = time.perf_counter()
            await without(number)
            ratios.append((between - began) / (time.perf_counter() - between))

    @agent
    async def benchmark(run: Run[Any]) -> None:
        await run.scope("streams", both)

    outcome = run(ground.workspace("stream"), benchmark)
    if outcome.error:
        raise outcome.error
    yield Result(
        f"a stream of {tokens:,} tokens into a partial",
        "time",
        "at most 1.05 times without",
        median(ratios),
        1.05,
        f"{spread(ratios)} times",
        f"in write(): {spread(shares, 100)} % of the time",
    )


def _loss(ground: Ground) -> Iterator[Result]:
    dice = random.Random(1)
    seconds = ground.pick(3, 2)
    kills = [_killed(ground, 0.3 + dice.random() * seconds) for _ in range(ground.pick(10, 3))]
    worst = max(kills, key=lambda kill: kill.lost / kill.allowed)
    yield Result(
        f"lost to a SIGKILL, worst of {len(kills)}",
        "time",
        "at most what 20 writes' time brings",
        worst.lost / worst.allowed,
        1,
        f"{worst.lost / worst.allowed:.2f} of it",
        f"{worst.lost} of {worst.arrived} tokens; a write took {worst.write * 1e6:.0f} µs; "
        f"at the median {median(kill.lost for kill in kills):.0f} lost",
    )


class _Kill:
    """The text that a killed stream had received, and the part in the file."""

    def __init__(self, arrived: list[float], writes: list[float], kept: int):
        self.arrived, self.lost = len(arrived), len(arrived) - kept
        self.write = max(writes[-3:])  # the one it was waiting after, or that the kill cut short
        # Besides: the token that comes when the time is up, and those that come during the write itself.
        self.allowed = 21 * self.write * _A_SECOND + 2


def _killed(ground: Ground, after: float) -> _Kill:
    workspace = ground.workspace("killed")
    process = child("stream", workspace)
    assert process.stdout
    lines = [process.stdout.readline()]
    time.sleep(after)
    process.kill()
    lines += process.stdout.read().splitlines()
    process.wait()
    rows = [line.split() for line in lines]
    store = DiskStore(workspace)
    folder = next(store.folders(partial_files.PARTIALS))
    found = partial_files.parse_partial(store.read(next(store.list(folder)).path).data)
    if found is None or found[2]:
        raise RuntimeError("the partial is torn")
    seconds = {kind: [float(row[1]) for row in rows if len(row) == 2 and row[0] == kind] for kind in ("token", "write")}
    return _Kill(seconds["token"], seconds["write"], len(found[1]) // len(_TOKEN))


# In the child


class _TimedSyscalls(Syscalls):
    """Measures how long each replacement of a partial took, from opening its temporary file to the rename."""

    def __init__(self) -> None:
        self._began = 0.0

    def open_new(self, path: str) -> int:
        self._began = time.perf_counter()
        return super().open_new(path)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if partial_files.PARTIALS in target:
            _tell("write", time.perf_counter() - self._began)


def _tell(what: str, seconds: float) -> None:
    os.write(1, f"{what} {seconds:.6f}\n".encode())


@step
async def for_ever(out: Partial) -> str:
    began = time.perf_counter()
    while True:
        await asyncio.sleep(1 / _A_SECOND)
        _tell("token", time.perf_counter() - began)
        await out.write(_TOKEN)


@agent
async def until_killed(run: Run[Any]) -> None:
    await run.scope("stream", for_ever)


if __name__ == "__main__":
    run(DiskStore(sys.argv[1], _TimedSyscalls()), until_killed)
