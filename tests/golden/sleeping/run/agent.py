"""Sleeps between two orders, and needs a result that is too large for a record."""

from datetime import datetime

from outside import note

from satchel import Run, agent, effect, step


@effect
async def order(what: str) -> None:
    note("bank.txt", what)


@step
async def fetch() -> str:
    note("reads.txt", "fetched")
    return "line\n" * 13_200


async def day(run: Run) -> None:
    text = await fetch()
    await order("breakfast")
    await run.sleep(datetime.fromisoformat(run.settings["noon"]))
    await order(f"lunch for {len(text.splitlines())}")


@agent
async def main(run: Run) -> None:
    await run.scope("day", day, run)
