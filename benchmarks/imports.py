"""What it costs before anything is done: `import satchel`, and a look at a workspace from the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from satchel import Run, agent, run, step

from .measuring import Ground, Result, spread

_SLOW = ("aiobotocore", "apprise", "fsspec", "jsonschema", "markdown_it", "openai", "pydantic", "rich", "s3fs",
         "tenacity", "watchdog")  # fmt: skip
"""Packages that take more than 5 ms and are needed by some runs only."""

_TIME_IMPORT = """
import asyncio, time
began = time.perf_counter()
import satchel
print(time.perf_counter() - began)
"""
_NAME_SLOW = f"import sys, satchel; print(*sorted(set({_SLOW!r}) & set(sys.modules)))"


@step
async def answer(number: int) -> int:
    return number


def measure(ground: Ground) -> Iterator[Result]:
    rounds = ground.pick(15, 5)
    times = [float(_python(ground, "-c", _TIME_IMPORT)) for _ in range(rounds + 1)][1:]
    yield Result(
        "import satchel, after asyncio", "time", "at most 60 ms", median(times), 0.060, f"{spread(times, 1e3)} ms",
        f"{rounds} fresh interpreters, bytecode cached",
    )  # fmt: skip
    slow = _python(ground, "-c", _NAME_SLOW).split()
    yield Result(
        "slow packages it has loaded", "count", "none", len(slow), 0, ", ".join(slow) or "none",
        f"of {len(_SLOW)} that are watched",
    )  # fmt: skip
    workspace = _some_workspace(ground)
    times = [_timed(ground, "-m", "satchel", "status", str(workspace)) for _ in range(rounds + 1)][1:]
    bare = [_timed(ground, "-c", "import asyncio") for _ in range(rounds + 1)][1:]
    yield Result(
        "satchel status of a local workspace", "time", "at most 250 ms", median(times), 0.250,
        f"{spread(times, 1e3)} ms", f"whole process; an interpreter with asyncio: {spread(bare, 1e3)} ms",
    )  # fmt: skip


def _some_workspace(ground: Ground) -> Path:
    @agent
    async def benchmark(run: Run[Any]) -> None:
        await run.plan("Benchmark", [f"item {number}" for number in range(20)])
        await run.todo.each(lambda run, item: answer(int(item.text.split()[1])))

    workspace = ground.workspace("status")
    outcome = run(workspace, benchmark)
    if outcome.error:
        raise outcome.error
    return workspace


def _python(ground: Ground, *arguments: str) -> str:
    """Bytecode is kept, as an installer keeps it, whatever this process was told; compiling is not what is measured."""
    settings = {**os.environ, "PYTHONPYCACHEPREFIX": str(ground.folder / "bytecode")}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=settings).stdout


def _timed(ground: Ground, *arguments: str) -> float:
    began = time.perf_counter()
    _python(ground, *arguments)
    return time.perf_counter() - began
