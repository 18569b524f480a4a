"""What is nested too deep is refused when it is kept, not when it is read back: then nothing could open the run."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from satchel import Run, agent, run, step
from satchel.runtime.agent.codec import DEPTH, encode
from satchel.workspace.base.errors import NotSerializable


def nested(depth: int, text: str = "") -> Any:
    value: Any = text
    for level in range(depth):
        value = {"in": value} if level % 2 else [value]
    return value


@step
async def make(depth: int) -> Any:
    return nested(depth)


@step
async def take(value: Any) -> None: ...


async def keep(run: Run[Any], depth: int) -> None:
    run.state["value"] = nested(depth - 1)


async def grow(run: Run[Any], depth: int) -> None:
    """One level more in each commit: no patch is deep, and the state is in the end."""
    level = run.state
    while "in" in level:
        level = level["in"]
    level["in"] = {}


async def many_scopes(run: Run[Any], depth: int) -> None:
    for number in range(depth - 1):
        await run.scope(str(number), grow, run, depth)


Way = Callable[[Run[Any], int], Awaitable[Any]]
WAYS: dict[str, Way] = {
    "result": lambda run, depth: make(depth),
    "argument": lambda run, depth: take(nested(depth - 1)),
    "scope": lambda run, depth: run.scope("s", nested, depth),
    "state": lambda run, depth: run.scope("s", keep, run, depth),
    "patches": many_scopes,
}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("depth", [DEPTH, DEPTH + 1, 976])
def test_a_value_is_kept_that_can_not_be_read_back(workspace: Path, way: str, depth: int) -> None:
    if way == "patches" and depth == 976:
        pytest.skip("it is refused long before")

    @agent
    async def main(run: Run[Any]) -> None:
        await WAYS[way](run, depth)
        await run.checkpoint()
        raise ValueError("not yet")

    outcome = run(workspace, main)
    if depth == DEPTH:
        assert isinstance(outcome.error, ValueError), outcome.error
    else:
        assert isinstance(outcome.error, NotSerializable) and "nested more than 90 deep" in str(outcome.error)
    json.loads((workspace / "state.json").read_text())
    assert isinstance(run(workspace, main).error, type(outcome.error)), "it can be opened again"


def test_an_initial_state_that_can_not_be_read_back_is_kept(workspace: Path) -> None:
    @dataclass
    class State:
        value: Any = field(default_factory=lambda: nested(DEPTH))

    @agent(state=State)
    async def main(run: Run[Any]) -> None: ...

    assert isinstance(run(workspace, main).error, NotSerializable)


@pytest.mark.parametrize("text", ["[" * 200, "]" * 200, '"[{', "\\" * 3 + '"' + "[" * 200])
def test_brackets_in_a_text_count_as_levels(text: str) -> None:
    data = encode([[text], *([[{"text": text}]] * 100)], "it")
    assert json.loads(data)[0] == [text]
    with pytest.raises(NotSerializable):
        encode(nested(DEPTH + 1, text), "it")
    assert encode(nested(DEPTH, text), "it")
