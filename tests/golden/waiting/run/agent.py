"""Asks a person before each payment. What it has paid is in bank.txt, outside the workspace."""

from outside import note

from satchel import Item, Run, agent, effect


@effect
async def pay(invoice: str) -> str:
    note("bank.txt", invoice)
    return f"receipt of {invoice}"


async def work(run: Run, item: Item) -> None:
    answer = await run.ask(
        f"Pay {item.text}?", ["approve", "deny"], context={"invoice": item.text, "sum": 10}, wait_for=0
    )
    run.state[item.text] = await pay(item.text) if answer.decision == "approve" else answer.note


@agent
async def main(run: Run) -> None:
    if not run.todo.items:
        await run.plan("Invoices", ["A-1", "B-22"])
    await run.todo.each(work)
