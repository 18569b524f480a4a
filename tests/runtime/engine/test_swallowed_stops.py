"""A stop that the agent's code swallows does not become a result, nor a failure."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from satchel import Agent, Item, Run, agent, run, step
from satchel.workspace import journal
from satchel.workspace.journal import ScopeFailed
from satchel.workspace.store import open_store

NAMES = ["a", "b", "c"]
FOUND = {"a": "A", "b": "B", "c": "C"}

Before = Callable[[], Awaitable[None]]


async def nothing() -> None: ...


def collecting(calls: list[str], before: Before = nothing, deep: bool = False, error: bool = False) -> Agent:
    """Its step looks three names up at once. A task group takes a call that is told to stop for one of no concern."""

    @step
    async def look_up(name: str) -> str:
        calls.append(name)
        await asyncio.sleep(0)
        return name.upper()

    @step
    async def between(name: str) -> str:
        return await look_up(name)

    @step
    async def collect() -> dict[str, str]:
        found: dict[str, str] = {}

        async def one(name: str) -> None:
            found[name] = await (between(name) if deep else look_up(name))

        await before()
        async with asyncio.TaskGroup() as group:
            for name in NAMES:
                group.create_task(one(name))
        if error and not found:
            raise LookupError("nothing was found")
        return found

    @agent
    async def main(run: Run[Any]) -> Any:
        return await collect()

    return main


async def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.02)


def once(function: Before) -> Before:
    left = [function]

    async def call() -> None:
        if left:
            await left.pop()()

    return call


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("error", [False, True])
def test_a_stop_becomes_the_result_of_a_step(workspace: Path, calls: list[str], deep: bool, error: bool) -> None:
    main = collecting(calls, once(terminate), deep, error)
    assert run(workspace, main).status == "paused"
    outcome = run(workspace, main)
    assert (outcome.status, outcome.result) == ("completed", FOUND)


def test_a_stop_between_two_levels_becomes_the_result_of_the_outer_one(workspace: Path, calls: list[str]) -> None:
    """The inner one has begun, and lets the stop by; the outer one swallows it."""

    @step
    async def innermost() -> str:
        return "inner"

    @step
    async def inner() -> str:
        if not calls:
            calls.append("stopped")
            await terminate()
        return await innermost()

    @step
    async def outer() -> list[str]:
        found = await asyncio.gather(inner(), return_exceptions=True)
        return [each for each in found if isinstance(each, str)]

    @agent
    async def main(run: Run[Any]) -> list[str]:
        return await outer()

    assert run(workspace, main).status == "paused"
    assert run(workspace, main).result == ["inner"]


def test_a_budget_that_is_used_up_becomes_the_result_of_a_step(workspace: Path, calls: list[str]) -> None:
    definition = (workspace / "workspace.yaml").read_text()
    (workspace / "workspace.yaml").write_text(definition + "budget: {steps: 2}\n")
    main = collecting(calls)
    assert run(workspace, main).status == "paused"
    (workspace / "workspace.yaml").write_text(definition)
    assert run(workspace, main, wake=True).result == FOUND


def test_a_timeout_around_an_agent_becomes_the_result_of_its_step(workspace: Path, calls: list[str]) -> None:
    left = asyncio.Event()

    @agent
    async def main(run: Run[Any]) -> Any:
        try:
            async with asyncio.timeout(0.01 if run.attempt == 1 else None):
                return await run.spawn(child, "child")
        finally:
            left.set()

    async def outlive_it() -> None:
        await asyncio.sleep(0.03)

    child = collecting(calls, once(outlive_it))
    assert run(workspace, main).status == "failed"
    assert run(workspace, main).result == FOUND


def test_stops_of_an_item_count_as_its_failures(workspace: Path, calls: list[str]) -> None:
    """Three of them would pause the run as stuck."""

    @step
    async def look_up(name: str) -> str:
        return name

    @step
    async def begin(attempt: int) -> None:
        if attempt <= 3:
            await terminate()

    async def work(run: Run[Any], item: Item) -> None:
        await begin(run.attempt)
        (found,) = await asyncio.gather(look_up("a"), return_exceptions=True)
        calls.append(str(found).upper() if isinstance(found, str) else {}["nothing was found"])

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one"])
        await run.todo.each(work)

    for _ in range(3):
        assert run(workspace, main).status == "paused"
    assert run(workspace, main).status == "completed" and calls == ["A"]
    lines = journal.read(open_store(str(workspace)), after=0).lines
    assert not [line for line in lines if isinstance(line.record, ScopeFailed)]
