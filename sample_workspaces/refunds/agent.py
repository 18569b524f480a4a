"""Answers a customer: an agent of Pydantic AI whose model requests and tool calls survive a crash.

`refunds` is called from the top at every start. What the agent had asked and done is answered from the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from model import RULES, endpoint
from pydantic_ai import Agent

from satchel import NotDone, Run, agent
from satchel.adapters.pydantic_ai import SatchelDurability, as_effect, idempotency_key

ORDERS = {"1007": ("kettle", 3900), "1008": ("spoon", 400), "1009": ("cup", 1200)}

support = Agent(
    name="support",
    instructions="Look up each order that the customer names, refund what arrived broken, and write a short answer.",
    capabilities=[SatchelDurability(stream=True)],
    model=RULES,
)


@dataclass
class Order:
    number: str
    article: str
    cents: int


@support.tool_plain
async def look_up(number: str) -> Order | str:
    """The order with this number."""
    if number not in ORDERS:
        return f"there is no order {number}"
    return Order(number, *ORDERS[number])


def bank() -> Path:
    """The file of the bank: one line for each transfer, with the key that it was ordered under."""
    run = Run.current()
    assert run is not None
    return Path(run.folder, run.settings["bank"])


def was_paid(number: str, cents: int, key: str) -> str:
    """After a crash in the middle of `refund`: the bank knows whether it has happened."""
    file = bank()
    if f"{key},{number},{cents}" not in (file.read_text().splitlines() if file.exists() else []):
        raise NotDone
    return f"{cents / 100:.2f} were paid back for order {number}"


@support.tool_plain(requires_approval=True, metadata=as_effect(verify=was_paid))
def refund(number: str, cents: int) -> str:
    """Pay the price of an order back."""
    with bank().open("a") as file:
        file.write(f"{idempotency_key()},{number},{cents}\n")
    return was_paid(number, cents, idempotency_key())


async def answer(run: Run[None]) -> None:
    """One scope: the conversation and the letter are committed together."""
    done = await support.run(run.settings["message"], model=endpoint(run.settings["model"]))
    await run.output("answer.md", f"{done.output}\n")


@agent
async def refunds(run: Run[None]) -> None:
    await run.scope("answer", answer, run)
