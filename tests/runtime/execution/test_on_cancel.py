"""`@agent(on_cancel=...)`: what undoes a run has its own calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from satchel import Agent, Run, agent, effect, run
from satchel.workspace.base.errors import UsageError


def cancel(workspace: Path) -> None:
    (workspace / "pause.yaml").write_text("mode: cancel\nreason: not needed\n")


def sending(calls: list[str], undone: str, crash: Any = None) -> Agent:
    """Sends `hello`, and fails; undone, it sends what it is told."""

    @effect
    async def send(text: str) -> str:
        calls.append(text)
        return f"receipt {len(calls)}"

    async def undo(run: Run[Any]) -> None:
        calls.append(await send(undone))
        if crash and run.attempt == 2:
            raise crash

    @agent(on_cancel=undo)
    async def main(run: Run[Any]) -> None:
        await send("hello")
        raise ValueError

    return main


@pytest.mark.parametrize("text", ["hello", "forget it"])
def test_an_effect_of_on_cancel_is_taken_for_one_of_the_agent(workspace: Path, calls: list[str], text: str) -> None:
    main = sending(calls, text)
    assert run(workspace, main).status == "failed"
    cancel(workspace)
    assert run(workspace, main).status == "cancelled"
    assert calls == ["hello", text, "receipt 2"]
    assert json.loads((workspace / "state.json").read_text())["open"] == []


def test_an_effect_of_on_cancel_is_done_again_after_a_crash(workspace: Path, calls: list[str], crash: Any) -> None:
    main = sending(calls, "hello", crash)
    run(workspace, main)
    cancel(workspace)
    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).status == "cancelled"
    assert calls == ["hello", "hello", "receipt 2", "receipt 2"]


def test_an_effect_of_the_agent_that_is_in_doubt_is_forgotten_by_on_cancel(
    workspace: Path, calls: list[str], crash: Any
) -> None:
    @effect
    async def send() -> None:
        calls.append("sent")
        raise crash

    async def undo(run: Run[Any]) -> None:
        calls.append("undone")

    @agent(on_cancel=undo)
    async def main(run: Run[Any]) -> None:
        await send()

    with pytest.raises(crash):
        run(workspace, main)
    cancel(workspace)
    outcome = run(workspace, main)
    assert (outcome.status, [doubt.why for doubt in outcome.doubts]) == ("waiting", ["unreached"])


def test_a_scope_may_have_the_name_of_on_cancels(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("on_cancel", lambda: None)

    assert isinstance(run(workspace, main).error, UsageError)
