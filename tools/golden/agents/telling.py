"""Tells a story word by word, as a model does, and prints it: a line in bank.txt, outside the workspace."""

from outside import here, note

from satchel import Item, Partial, Run, agent, effect, step

STORY = "Once upon a time a run was killed in the middle of a word, and it went on where it was."
WORDS = STORY.split()


@step
async def tell(title: str, out: Partial) -> str:
    known = len((out.recovered or "").split())
    note("reads.txt", f"{title} from word {known}")
    for number in range(known, len(WORDS)):
        await out.write(f"{WORDS[number]} ")
        if number == 11:
            await here("half is told")
    return out.text


@effect
async def print_out(title: str, words: int) -> None:
    note("bank.txt", f"{title}: {words} words")


async def work(run: Run, item: Item) -> None:
    text = await tell(item.text)
    await print_out(item.text, len(text.split()))
    await run.output("story.txt", text)


@agent
async def main(run: Run) -> None:
    if not run.todo.items:
        await run.plan("Stories", ["A run"])
    await run.todo.each(work)
