"""Going back to the last known-good checkpoint, after a stop that was not clean."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from satchel import Item, Outcome, Run, agent, effect, run, step
from satchel.workspace.errors import Refused


def spoilt(workspace: Path, calls: list[str]) -> Any:
    """A run of three items, two of them done: the first before a checkpoint, the second since. It hangs in the third,
    and is forced to stop there."""

    @step
    async def read(text: str) -> str:
        calls.append(f"read {text}")
        return text

    @effect
    async def send(text: str) -> str:
        calls.append(f"send {text}")
        return f"sent {text}"

    @step
    async def hang() -> None:
        if calls.count("hang") == 0:
            calls.append("hang")
            (workspace / "pause.yaml").write_text("reason: a look\n")
            await asyncio.Event().wait()

    async def work(run: Run[Any], item: Item) -> None:
        if item.text == "b" and "hang" not in calls:
            await run.checkpoint()
        run.state[item.text] = await send(await read(item.text))
        if item.text == "c":
            await hang()

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["a", "b", "c"])
        await run.todo.each(work)

    return main


def outcome(workspace: Path, main: Any, **options: Any) -> Outcome:
    return run(workspace, main, drain_timeout=0.1, **options)


def said(found: Outcome) -> str:
    return "\n".join(remark.text for remark in found.report.remarks)


def test_effects_are_done_twice_or_work_since_is_kept(workspace: Path, calls: list[str]) -> None:
    main = spoilt(workspace, calls)
    assert outcome(workspace, main).status == "paused"
    assert calls == ["read a", "send a", "read b", "send b", "read c", "send c", "hang"]
    calls[:] = ["hang"]
    found = outcome(workspace, main, wake=True, from_checkpoint=True)
    assert found.status == "completed", found.error
    assert calls == ["hang", "read b", "read c"], "what was done since, and no effect, was to be done again"
    assert "went back to checkpoints/" in said(found) and "item 2 ('b') will be done again" in said(found)
    data = json.loads((workspace / "state.json").read_text())["data"]
    assert data == {name: f"sent {name}" for name in "abc"}


def test_after_an_unclean_stop_nobody_says_what_one_can_go_back_to(workspace: Path, calls: list[str]) -> None:
    main = spoilt(workspace, calls)
    outcome(workspace, main)
    found = outcome(workspace, main, wake=True)
    assert found.status == "completed" and "the last known-good checkpoint is of record" in said(found)
    assert calls.count("read b") == 1, "it was only offered"


def test_a_run_without_an_earlier_checkpoint_is_begun_anew(workspace: Path, calls: list[str]) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        calls.append("main")

    with pytest.raises(Refused, match="there is no earlier one that is whole"):
        run(workspace, main, from_checkpoint=True)
    assert calls == [] and not (workspace / "journal").exists()
