"""What an agent's own loop and threads do to a run: eager tasks, and a StopIteration in a thread."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from waits import PATIENCE

from satchel import Run, agent, run, run_async, step


def test_a_stop_iteration_in_a_sync_step_hangs_the_run(workspace: Path) -> None:
    @step
    def first() -> int:
        return next(iter([]))

    @agent
    async def main(run: Run[Any]) -> None:
        async with asyncio.timeout(PATIENCE):
            await first()

    outcome = run(workspace, main)
    assert outcome.status == "failed" and isinstance(outcome.error, RuntimeError), outcome
    assert "StopIteration" in str(outcome.error) and isinstance(outcome.error.__cause__, StopIteration)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are no eager tasks yet")
@pytest.mark.parametrize("stop", ["waiting", "paused", "sleeping", "in a sub-agent", "completed"])
def test_eager_tasks_end_a_run_that_waits_as_failed(workspace: Path, stop: str) -> None:
    async def ends(run: Run[Any]) -> str:
        match stop:
            case "waiting" | "in a sub-agent":
                await run.ask("Now?", wait_for=0)
            case "paused":
                await run.pause("enough")
            case "sleeping":
                await run.sleep(3600)
        return "done"

    @agent
    async def child(run: Run[Any]) -> str:
        return await ends(run)

    @agent
    async def main(run: Run[Any]) -> str:
        return str(await run.spawn(child, "child")) if stop == "in a sub-agent" else await ends(run)

    async def program() -> Any:
        loop: Any = asyncio.get_running_loop()
        loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        return await run_async(workspace, main)

    outcome = asyncio.run(program())
    assert outcome.status == ("waiting" if stop == "in a sub-agent" else stop), outcome.error
