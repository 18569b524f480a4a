"""Gives a new colleague an account, the privileges that a person approves, and a welcome mail: one item each.

`onboarding` is called from the top at every start. Finished work returns its recorded results. If a process died during
an effect, the directory or the mailbox is asked before it is repeated.
"""

from __future__ import annotations

from directory import connect, create_account, is_sound
from letter import SUBJECT, compose
from post import is_reachable, open_post, send
from privileges import privileges
from settings import read_settings
from state import State

from satchel import Item, Resource, Run, agent

CREATE = "Create the account"
SET = "Set the privileges"
WELCOME = "Send the welcome mail"


async def work(run: Run[State], item: Item) -> None:
    """One item of todo.md. When this returns, the state and the tick are committed together."""
    settings = read_settings(run.settings)
    if item.text == CREATE:
        run.state.account = await create_account(settings.account, settings.name, settings.address)
    elif item.text == SET and settings.privileges:
        run.state.privileges = await run.spawn(
            privileges, "privileges", run.state.account, settings.name, settings.privileges
        )
    elif item.text == SET:
        item.skip("workspace.yaml asks for none")
    elif item.text == WELCOME:
        text = compose(settings.name, run.state.account, run.state.privileges)
        await send(settings.address, SUBJECT, text)
        run.state.welcomed = settings.address
        await run.output("welcome.txt", text)
    else:
        item.skip(f"this agent does only `{CREATE}`, `{SET}` and `{WELCOME}`")


@agent(
    state=State,
    resources=[
        Resource("directory", connect, tier="infrastructure", check=is_sound),
        Resource("mail", open_post, check=is_reachable, timeout=15),
    ],
)
async def onboarding(run: Run[State]) -> None:
    read_settings(run.settings)  # a setting that is wrong is told before anything is done
    if not run.todo.items:
        await run.plan("Onboarding", [CREATE, SET, WELCOME])
    await run.todo.each(work)
