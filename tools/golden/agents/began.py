"""The first version of the agent in growing.py."""

from dataclasses import dataclass

from outside import note

from satchel import Item, Run, agent, effect


@dataclass
class State:
    name: str = "Ada"
    letters: int = 0


@effect
async def post(letter: str, to: str) -> None:
    note("bank.txt", f"{letter} to {to}")


async def work(run: Run[State], item: Item) -> None:
    await post(item.text, run.state.name)
    run.state.letters += 1
    if item.text == "letter 1":
        await run.pause("a new version comes")


@agent(state=State)
async def main(run: Run[State]) -> None:
    if not run.todo.items:
        await run.plan("Letters", ["letter 1", "letter 2"])
    await run.todo.each(work)
