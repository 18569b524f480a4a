"""The sub-agent: asks a person for the budget. Its plan and its state are in agents/buyer/."""

from __future__ import annotations

from typing import Any

from satchel import Item, Run, agent

ASK = "Ask for the budget"


@agent
async def buyer(run: Run[Any], totals: dict[str, float]) -> float:
    async def work(run: Run[Any], item: Item) -> None:
        answer = await run.ask(
            f"The offers go from {min(totals.values()):.2f} to {max(totals.values()):.2f}. What may the chairs cost?",
            schema={"type": "number", "minimum": 0},
            context=totals,
            wait_for=60,
        )
        run.state["budget"] = answer.decision

    if not run.todo.items:
        await run.plan("Budget", [ASK])
    await run.todo.each(work)
    return float(run.state["budget"])
