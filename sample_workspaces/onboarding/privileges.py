"""The sub-agent: asks a person about each privilege, and sets the approved ones.

Its plan, its state and its steps are in agents/privileges/.
"""

from __future__ import annotations

from directory import set_privilege
from settings import read_settings
from state import Decision, PrivilegesState

from satchel import Item, Run, agent

ASK_FOR = "Ask for "


@agent(state=PrivilegesState)
async def privileges(run: Run[PrivilegesState], account: str, name: str, wanted: list[str]) -> dict[str, Decision]:
    async def work(run: Run[PrivilegesState], item: Item) -> None:
        privilege = item.text.removeprefix(ASK_FOR)
        answer = await run.ask(
            f"May {name} have the privilege {privilege}?",
            choices=["approve", "deny"],
            context={"who": name, "account": account, "what": privilege},
            wait_for=read_settings(run.settings).wait_for,
        )
        # The answer is on record here. Whatever dies from now on, it stays what it is.
        if answer == "approve":
            await set_privilege(account, privilege, answer.by)
        run.state.decisions[privilege] = Decision(answer == "approve", answer.by, answer.note)

    if not run.todo.items:
        await run.plan(f"Privileges of {account}", [ASK_FOR + privilege for privilege in wanted])
    await run.todo.each(work)
    return run.state.decisions
