"""Talks: each answer is made of all that was said before, and told to bank.txt, outside the workspace."""

from outside import here, note

from satchel import Item, Run, agent, effect, step


@step
async def answer(question: str, before: list[str]) -> str:
    return f"{question} is question {len(before) // 2 + 1}"


@effect
async def tell(text: str) -> None:
    note("bank.txt", text)


async def reply(run: Run, item: Item) -> None:
    before = [str(message["content"]) for message in run.messages.all()]
    run.messages.add("user", item.text)
    said = await answer(item.text, before)
    run.messages.add("assistant", said)
    await tell(said)
    await here(f"{item.text} is answered")


@agent
async def main(run: Run) -> None:
    if not run.todo.items:
        await run.plan("Talk", ["Sun?", "Rain?", "Snow?"])
    await run.todo.each(reply)
