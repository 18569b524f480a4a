"""How fast a run is, and when it will be done: an estimate that a person can rely on, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import Item, Run, agent, run, step
from satchel.runtime.api import forecast
from satchel.workspace.state import ENDS_KEPT


@pytest.mark.parametrize(
    ("ends", "to_do", "now", "words"),
    [
        ([24.0, 48.0], 8, 48.0, "2.5 items a minute, about 4 min left"),
        ([0.1], 1000, 0.1, "10 items a second, about 2 min left"),
        ([0.001], 1_000_000, 0.001, "1,000 items a second, about 17 min left"),
        ([60.0], 1, 60.0, "1 item a minute, about 1 min left"),
        ([60.0], 1, 70.0, "1 item a minute, about 50 s left"),
        ([3600.0], 26, 3600.0, "1 item an hour, about 26 h 0 min left"),
        ([7200.0], 3, 7200.0, "12 items a day, about 6 h 0 min left"),
        ([400_000.0], 1, 400_000.0, "0.2 items a day, about 4 days left"),
        # The one that runs now takes longer than the others: they are slower than it seemed, and it is not done yet.
        ([60.0], 1, 240.0, "30 items an hour, about 1 min left"),
        # Only the newest count.
        ([10_000.0 + 6 * number for number in range(ENDS_KEPT)], 10, 10_114.0, "10 items a minute, about 1 min left"),
        # The clocks of two machines differ.
        ([24.0, 48.0], 8, -1000.0, "2.5 items a minute, about 4 min left"),
    ],
)
def test_an_estimate_is_wrong(ends: list[float], to_do: int, now: float, words: str) -> None:
    found = forecast(0.0, ends, to_do, now)
    assert found is not None and found.words == words


def test_there_is_an_estimate_of_nothing() -> None:
    assert forecast(0.0, [], 5, 10.0) is None and forecast(0.0, [1.0, 2.0], 0, 10.0) is None


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("every", ["item", "milestone"])
def test_a_pause_counts_or_a_checkpoint_hides_what_was_done(tmp_path: Path, parallel: int, every: str) -> None:
    """Seen from the files, as another process sees them."""
    workspace = tmp_path
    definition = f"format: 1\nrun_id: test-1\nagent: agent.py:main\ncheckpoints: {{every: {every}}}\n"
    (workspace / "workspace.yaml").write_text(definition)
    looks: dict[str, list[Any]] = {}

    @step
    async def look(text: str) -> None:
        status = satchel.open(workspace).status()
        assert status.moment is not None
        looks[text] = [status.forecast, len(status.moment.root.ended_at)]

    @step
    async def ready() -> None:
        """Its record is durable, and so is what came before it."""

    async def work(run: Run[Any], item: Item) -> None:
        await ready()
        if item.text == "third":
            await look("before")
            if "paused" not in looks:
                looks["paused"] = []
                await run.pause("to think")
            await look("after")
        if item.text == "fourth":
            await look("later")

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["first", "dropped", "second", "third", "fourth", "fifth"])
            await run.todo.cancel(run.todo.items[1])
        await run.todo.each(work, parallel=parallel)

    assert run(workspace, main).status == "paused" and satchel.open(workspace).status().forecast is None
    before, count = looks["before"]
    if parallel == 1:
        assert count == 2 and before.each < 60
        assert before.each * 2.499 <= before.left <= before.each * 3, "three are to do, one of them has begun"
    assert run(workspace, main, wake=True).status == "completed"
    assert looks["after"] == [None, 0], "none has ended since the pause"
    assert satchel.open(workspace).status().forecast is None, "it does not run"
    if parallel == 1:
        assert looks["later"][1] == 1 and looks["later"][0].left < looks["later"][0].each * 2 + 1e-6
