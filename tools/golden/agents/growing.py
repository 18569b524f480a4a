"""The second version of an agent: its state has names in place of one name. The first version began the run."""

from dataclasses import dataclass, field
from typing import Any

from outside import note

from satchel import Item, Run, agent, effect, migration


@dataclass
class State:
    names: list[str] = field(default_factory=list)
    letters: int = 0


@migration(2)
def names(data: dict[str, Any]) -> dict[str, Any]:
    return {"names": [data["name"]], "letters": data["letters"]}


@effect
async def post(letter: str, to: str) -> None:
    note("bank.txt", f"{letter} to {to}")


async def work(run: Run[State], item: Item) -> None:
    await post(item.text, run.state.names[0])
    run.state.letters += 1


@agent(state=State, migrations=[names])
async def main(run: Run[State]) -> None:
    await run.todo.each(work)
