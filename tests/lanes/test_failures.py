"""Errors of items in parallel, wherever they are raised."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from satchel import Item, Run, run
from satchel.workspace.journal import ScopeFailed

from .work import data_of, make, marks, records

broken: set[str] = set()


@pytest.fixture(autouse=True)
def nothing_is_broken() -> None:
    broken.clear()


@dataclass
class Fragile:
    """A state type that may refuse what it has once accepted."""

    n: int = 0

    def __post_init__(self) -> None:
        if "state" in broken:
            raise ValueError("the state can't be read any more")


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.usefixtures("no_waits")
def test_a_state_that_can_not_be_read_is_tried_for_ever(workspace: Path, parallel: int) -> None:
    async def work(run: Run[Fragile], item: Item) -> None:
        run.state.n += 1
        if item.text == "one":
            broken.add("state")
            raise ConnectionError("once")

    outcome = run(workspace, make(work, "one", "two", parallel=parallel, state=Fragile))
    assert outcome.status == "paused"
    said = (workspace / "pause.yaml").read_text()
    assert "stuck: " in said and "has failed 3 times" in said and "the state can't be read any more" in said
    assert len(records(workspace, ScopeFailed)) >= 3
    broken.clear()
    assert run(workspace, make(work_well, "one", "two", state=Fragile), wake=True).status == "completed"
    assert data_of(workspace)["n"] == 2


async def work_well(run: Run[Any], item: Item) -> None:
    run.state.n += 1


@pytest.mark.usefixtures("no_waits")
def test_an_item_that_was_skipped_by_an_attempt_that_does_not_count_is_skipped(workspace: Path) -> None:
    """Its commit has contradicted another, and the second attempt does the work."""

    def begin(run: Run[Any]) -> None:
        run.state["n"] = 0

    async def work(run: Run[Any], item: Item) -> None:
        if item.text == "two" and run.state["n"] == 0:
            item.skip("nothing there yet")
            for _ in range(9):  # the other commits first
                await asyncio.sleep(0)
        run.state["n"] += 1

    assert run(workspace, make(work, "one", "two", begin=begin)).error is None
    assert data_of(workspace)["n"] == 2
    assert marks(workspace) == [("one", "x"), ("two", "x")]
