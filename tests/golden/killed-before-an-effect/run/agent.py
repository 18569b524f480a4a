"""Pays invoices. What it has looked up is in reads.txt, and what it has paid in bank.txt, outside the workspace."""

from dataclasses import dataclass, field

from outside import here, note

from satchel import Item, Run, agent, effect, step


@dataclass
class State:
    receipts: dict[str, str] = field(default_factory=dict)
    paid: int = 0


@step
async def look_up(invoice: str) -> int:
    await here(f"{invoice} is looked up")
    note("reads.txt", invoice)
    return 10 * len(invoice)


@effect
async def pay(invoice: str, amount: int) -> str:
    await here(f"{invoice} is not paid yet")
    note("bank.txt", f"{invoice} {amount}")
    await here(f"{invoice} is paid")
    return f"receipt of {invoice}"


async def work(run: Run[State], item: Item) -> str:
    before = run.state.paid
    amount = await look_up(item.text)
    receipt = await pay(item.text, amount)
    await here(f"{item.text} has a receipt")
    run.state.receipts[item.text] = receipt
    run.state.paid = before + amount
    return receipt


@agent(state=State)
async def main(run: Run[State]) -> str:
    if not run.todo.items:
        await run.plan("Invoices", ["A-1", "B-22", "C-333", "D-4444"])
    await run.todo.each(work)
    return "all are paid"
