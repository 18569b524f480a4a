"""Does the tasks of its inbox, and listens to messages. Each task done is a line in bank.txt, outside the workspace."""

from outside import here, note

from satchel import InboxTask, Run, agent, effect


@effect
async def do(task: str) -> str:
    note("bank.txt", task)
    return f"did {task}"


async def work(run: Run, task: InboxTask) -> None:
    what = task.data["schedule"] if task.kind == "schedule" else task.text.strip()
    heard = [each.text for each in await run.inbox.take("message")]
    run.state.setdefault("heard", []).extend(heard)
    run.state.setdefault("done", []).append(await do(what))
    await here(f"{what} is done")


@agent
async def main(run: Run) -> None:
    await run.inbox.each(work)
