"""First mistakes with the API: each message says what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from satchel import Run, UsageError, agent, effect, run, step


class Tool:
    async def __call__(self, text: str) -> str:
        return text

    async def look_up(self, text: str) -> str:
        return text

    @property
    def size(self) -> int:
        return 1


def numbers() -> Iterator[int]:
    yield 1


async def parts() -> AsyncIterator[str]:
    yield ""


async def undecorated(run: Run) -> None: ...


@step
async def look_up(text: str) -> str:
    return text


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Tool(), r'without a name.*step\(name="\.\.\."\)'),
        (partial(numbers), r'without a name.*step\(name="\.\.\."\)'),
        (Tool, "the class Tool can't be a step.*Decorate its methods"),
        (numbers, "Return a list, or write `async def` and yield text"),
        (look_up, "is a step already.*Decorate it once"),
        (effect(Tool().look_up), "is an effect already.*Decorate it once"),
        (Tool.__dict__["size"], "Decorate the method that it calls"),
        ("look_up", "Decorate a function"),
    ],
)
def test_what_can_not_be_a_step_is_refused_at_its_decoration(function: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        step(function)


def test_a_bound_method_and_a_callable_object_with_a_name_are_steps(workspace: Path) -> None:
    bound, called = step(Tool().look_up), step(name="tool")(Tool())

    @agent
    async def main(run: Run) -> list[str]:
        return [await bound("a"), await called("b")]

    assert run(workspace, main).result == ["a", "b"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (parts, "it yields, so it is a generator.*and stream text in a step"),
        (numbers, "Write `async def`"),
        (Tool(), "Write `async def`"),
    ],
)
def test_what_can_not_be_an_agent_is_refused_with_a_remedy(function: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        agent(function)


def test_an_undecorated_agent_is_refused_with_a_remedy(workspace: Path) -> None:
    with pytest.raises(UsageError, match=r"undecorated is not an agent.*@agent"):
        run(workspace, undecorated)  # type: ignore[arg-type]


def test_run_in_a_running_loop_names_its_async_version(workspace: Path) -> None:
    async def main() -> None:
        run(workspace, agent(undecorated))

    with pytest.raises(UsageError, match="run_async"):
        asyncio.run(main())


def test_a_missing_await_is_reported_with_its_line_and_remedy(workspace: Path) -> None:
    @agent
    async def main(run: Run) -> None:
        look_up("a")

    error = str(run(workspace, main).error)
    assert "never awaited" in error and "test_mistakes.py:" in error and "Write `await look_up(...)`" in error
