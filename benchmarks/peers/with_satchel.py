"""Satchel: steps in one scope, and items that are planned, do one step, change the state and are ticked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from satchel import Agent, Item, Run, agent, run, step
from satchel.workspace.base.names import DEFINITION
from satchel.workspace.formats import definition
from satchel.workspace.formats.definition import Definition

from .pairing import Pairing


def strict(folder: Path, pairing: Pairing) -> None:
    _steps(folder, pairing, "strict")


def pipelined(folder: Path, pairing: Pairing) -> None:
    _steps(folder, pairing, "pipelined")


def items(folder: Path, pairing: Pairing) -> None:
    def change(state: Any, result: str) -> None:
        state["last"] = result

    _items(folder, pairing, change)


def growing(folder: Path, pairing: Pairing) -> None:
    def change(state: Any, result: str) -> None:
        state.setdefault("all", []).append(result)

    _items(folder, pairing, change)


def _steps(folder: Path, pairing: Pairing, durability: Literal["strict", "pipelined"]) -> None:
    @step
    async def answer(number: int) -> str:
        return pairing.body()

    async def calls() -> None:
        for number in range(pairing.total):
            await answer(number)

    @agent(durability=durability)
    async def benchmark(run: Run[Any]) -> None:
        await run.scope("calls", calls)

    start(folder, benchmark)


def _items(folder: Path, pairing: Pairing, change: Callable[[Any, str], None]) -> None:
    @step
    async def answer(text: str) -> str:
        return pairing.body()

    async def work(run: Run[Any], item: Item) -> None:
        change(run.state, await answer(item.text))

    @agent
    async def benchmark(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan("Benchmark", [f"item {number}" for number in range(pairing.total)])
        await run.todo.each(work)

    start(folder, benchmark)


def start(folder: Path, benchmark: Agent) -> None:
    """Run this agent in a workspace there, until it has completed."""
    workspace = folder / "run"
    if not workspace.exists():
        workspace.mkdir()
        (workspace / DEFINITION).write_text(definition.encode(Definition("benchmark", "benchmark.py:main")))
    outcome = run(workspace, benchmark)
    if outcome.status != "completed":
        raise RuntimeError(f"it is {outcome.status}: {outcome.error}")
