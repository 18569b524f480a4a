"""Reads offers, compares them while the buyer is asked for the budget, and orders.

It needs no model: `write` in comparing.py writes a fixed comparison, word by word, as a model would.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from buying import buyer
from comparing import compare
from reading import Offer, add_up, read

from satchel import Item, Key, Run, agent, effect

READ, COMPARE, ORDER = "Read the offer of ", "Compare the offers", "Order"


@dataclass
class State:
    offers: dict[str, Offer] = field(default_factory=dict)
    budget: float | None = None
    ordered: str = ""


@effect
async def order(key: Key, supplier: str, total: float) -> str:
    """The order. The supplier would get `key`, which is the same at every attempt."""
    return f"order {key[:8]} at {supplier} for {total:.2f}"


async def work(run: Run[State], item: Item) -> None:
    """One item of todo.md. When this returns, the state and the tick are committed together."""
    if item.text.startswith(READ):
        supplier = item.text.removeprefix(READ)
        run.state.offers[supplier] = await read(supplier, run.settings["offers"][supplier])
    elif item.text == COMPARE:
        totals = await add_up(run.state.offers)
        prompt = run.prompt("compare", what="chairs", offers="\n".join(f"{k}: {v:.2f}" for k, v in totals.items()))
        run.messages.add("user", prompt)
        text, run.state.budget = await asyncio.gather(
            compare(prompt, run.settings["words_per_second"]), run.spawn(buyer, "buyer", totals)
        )
        run.messages.add("assistant", text)
        await run.output("comparison.md", text + "\n")
    elif item.text == ORDER:
        affordable = [name for name, offer in run.state.offers.items() if offer.total <= (run.state.budget or 0)]
        if affordable:
            supplier = min(
                affordable, key=lambda name: (-run.state.offers[name].guarantee, run.state.offers[name].total)
            )
            run.state.ordered = await order(supplier, run.state.offers[supplier].total)
        else:
            item.skip("no offer is within the budget")
    else:
        item.skip("this agent only reads, compares and orders")


@agent(state=State)
async def offers(run: Run[State]) -> None:
    if not run.todo.items:
        await run.plan("Chairs for the new office", [*(READ + name for name in run.settings["offers"]), COMPARE, ORDER])
    await run.todo.each(work)
