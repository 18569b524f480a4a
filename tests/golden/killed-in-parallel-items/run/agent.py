"""Pays invoices, three at once, by an effect that can be verified: bank.txt, outside the workspace, tells of it."""

from outside import OUTSIDE, here, note

from satchel import Item, NotDone, Run, agent, effect

BANK = OUTSIDE / "bank.txt"


def was_paid(invoice: str) -> str:
    if not BANK.exists() or invoice not in BANK.read_text().splitlines():
        raise NotDone
    return f"receipt of {invoice}"


@effect(verify=was_paid)
async def pay(invoice: str) -> str:
    note("bank.txt", invoice)
    await here("it is paid")
    return f"receipt of {invoice}"


async def work(run: Run, item: Item) -> None:
    run.state[item.text] = await pay(item.text)


@agent
async def main(run: Run) -> None:
    if not run.todo.items:
        await run.plan("Invoices", ["A-1", "B-22", "C-333", "D-4444"])
    await run.todo.each(work, parallel=3)
