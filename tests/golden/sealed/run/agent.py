"""Signs in, keeps the token sealed, and uses it. Each use is a line in bank.txt, outside the workspace."""

from dataclasses import dataclass

from outside import here, note

from satchel import Run, Sealed, agent, effect, step


@dataclass
class State:
    token: Sealed | None = None


@step
async def sign_in() -> Sealed:
    note("reads.txt", "signed in")
    return Sealed("token-of-today")


@effect
async def order(what: str, token: Sealed) -> str:
    note("bank.txt", f"{what} with a token of {len(token.value)} characters")
    return what


async def enter(run: Run[State]) -> None:
    run.state.token = await sign_in()


async def buy(run: Run[State], what: str) -> None:
    assert run.state.token is not None
    await order(what, run.state.token)
    await here(f"{what} is ordered")


@agent(state=State)
async def main(run: Run[State]) -> None:
    await run.scope("sign in", enter, run)
    for what in ("ink", "paper"):
        await run.scope(f"buy {what}", buy, run, what)
