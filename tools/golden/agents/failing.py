"""Fails at its second item as long as mended.txt, outside the workspace, is missing."""

from outside import OUTSIDE, note

from satchel import Item, Run, agent, effect, step


@effect
async def pay(invoice: str) -> None:
    note("bank.txt", invoice)


@step
async def ask_the_bank(invoice: str) -> str:
    if invoice == "B-22" and not (OUTSIDE / "mended.txt").exists():
        raise ValueError(f"the bank does not know {invoice}")
    return f"{invoice} is settled"


async def work(run: Run, item: Item) -> None:
    await pay(item.text)
    run.state[item.text] = await ask_the_bank(item.text)


@agent
async def main(run: Run) -> None:
    if not run.todo.items:
        await run.plan("Invoices", ["A-1", "B-22", "C-333"])
    await run.todo.each(work)
