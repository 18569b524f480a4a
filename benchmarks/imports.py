"""The cost before anything is done: an agent's imports, and small commands.

CPU time of whole processes, because on a busy machine they wait longer than they work.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from satchel import Run, agent, run, step

from .measuring import Ground, Result, spread

LINE = "from satchel import agent, effect, step, Run, Item, Partial"
"""The first line of every agent's file."""

SLOW = (
    "aiobotocore",
    "apprise",
    "click",
    "filelock",
    "fsspec",
    "jsonschema",
    "markdown_it",
    "openai",
    "pydantic",
    "rich",
    "s3fs",
    "tenacity",
    "watchdog",
    "yaml",
)
"""Packages that take more than 5 ms and that no agent's file needs."""

NAME_LOADED = f"import asyncio, sys; before = set(sys.modules); {LINE}; print(*sorted(set(sys.modules) - before))"

_AGENT = f"""{LINE}

@step
async def answer(number: int) -> int:
    return number

@agent
async def main(run: Run) -> None:
    await run.scope("one", answer, 1)
"""


@step
async def answer(number: int) -> int:
    return number


def measure(ground: Ground) -> Iterator[Result]:
    rounds = ground.pick(25, 5)
    bare, line, helps, looks, runs = _in_turns(
        ground,
        rounds,
        ["-c", "import asyncio"],
        ["-c", f"import asyncio; {LINE}"],
        ["-m", "satchel", "--help"],
        ["-m", "satchel", "status", str(_some_workspace(ground))],
        ["-m", "satchel", "run"],
    )
    over = [one - other for one, other in zip(line, bare, strict=True)]
    yield Result(
        "an agent's imports, after asyncio",
        "time",
        "at most 60 ms of CPU",
        median(over),
        0.060,
        f"{spread(over, 1e3)} ms",
        f"{LINE!r}; asyncio alone: {spread(bare, 1e3)} ms; {rounds} pairs, bytecode cached",
    )
    loaded = _python(ground, "-c", NAME_LOADED).split()
    slow = sorted(set(SLOW) & set(loaded))
    yield Result(
        "slow packages that they load",
        "count",
        "none",
        len(slow),
        0,
        ", ".join(slow) or "none",
        f"of {len(SLOW)} that are watched; {len(loaded)} modules in all",
    )
    for name, times, limit in (
        ("satchel --help", helps, 0.120),
        ("satchel status of a local workspace", looks, 0.150),
        ("satchel run of one step, its two processes", runs, 0.300),
    ):
        yield Result(
            name, "time", f"at most {limit * 1e3:.0f} ms of CPU", median(times), limit, f"{spread(times, 1e3)} ms"
        )


def _in_turns(ground: Ground, rounds: int, *commands: list[str]) -> list[list[float]]:
    """The CPU seconds of each command with its children, `rounds` times and one more that does not count."""
    found: list[list[float]] = [[] for _ in commands]
    for number in range(rounds + 1):
        for command, times in zip(commands, found, strict=True):
            folder = [str(_new_workspace(ground))] if command[-1] == "run" else []
            began = _cpu()
            _python(ground, *command, *folder)
            if number:
                times.append(_cpu() - began)
    return found


def _new_workspace(ground: Ground) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="one-", dir=ground.folder))
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: one\nagent: agent.py:main\n")
    (folder / "agent.py").write_text(_AGENT)
    return folder


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


def _cpu() -> float:
    """Seconds of the ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _python(ground: Ground, *arguments: str) -> str:
    """Bytecode is kept, as by an installer, whatever the environment says; compiling is not measured."""
    settings = {**os.environ, "PYTHONPYCACHEPREFIX": str(ground.folder / "bytecode")}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=settings).stdout
