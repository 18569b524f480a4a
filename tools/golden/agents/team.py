"""Two helpers, each with a plan of its own, and one of them with a helper: all at once."""

from outside import here, note

from satchel import Item, Run, agent, effect, step


@step
async def read(page: str) -> int:
    note("reads.txt", page)
    return len(page)


@effect
async def order(book: str) -> str:
    note("bank.txt", book)
    return f"order of {book}"


async def work(run: Run, item: Item) -> int:
    await order(item.text)
    await here(f"{item.text} is ordered")
    run.state[item.text] = await read(item.text)
    return run.state[item.text]


@agent
async def assistant(run: Run) -> int:
    if not run.todo.items:
        await run.plan(None, ["maps"])
    await run.todo.each(work)
    return sum(run.state.values())


@agent
async def reader(run: Run, topic: str) -> int:
    if not run.todo.items:
        await run.plan(None, [f"{topic} I", f"{topic} II"])
    found = await run.spawn(assistant, "assistant") if topic == "travel" else 0
    await run.todo.each(work)
    return found + sum(run.state.values())


@agent
async def main(run: Run) -> int:
    async def both(run: Run) -> list[int]:
        return [await run.spawn(reader, "history", "history"), await run.spawn(reader, "travel", "travel")]

    return sum(await run.scope("both", both, run))
