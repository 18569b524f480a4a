"""Tasks of an inbox: the run pauses after the second, and hands on what is left.

Who the tasks are handed to takes them away at once, as another run would. In the end each task was done once: by this
run, or over there.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from waits import NOBODY_SAVES

import killing
from satchel import InboxTask, NotDone, Run, agent, effect
from satchel.workspace.inbound import inbox
from satchel.workspace.views import guarded_files

TASKS = ("a", "b", "c", "d")
guarded_files.WAITS = NOBODY_SAVES  # no one is in the middle of saving


def make_agent(outside: Path) -> Any:
    def was_done(text: str) -> str:
        if text not in (outside.read_text().splitlines() if outside.exists() else ()):
            raise NotDone
        return text

    @effect(verify=was_done)
    def act(text: str) -> str:
        with outside.open("a") as file:
            file.write(f"{text}\n")
        return text

    @agent
    async def main(run: Run) -> None:
        async def work(run: Run, task: InboxTask) -> None:
            heard = [each.text for each in await run.inbox.take("message")]
            run.state.setdefault("done", []).append(await act(task.text))
            run.state["heard"] = run.state.get("heard", []) + heard
            if task.text == "b" and not outside.with_name("paused").exists():
                outside.with_name("paused").touch()
                os.kill(os.getpid(), signal.SIGINT)

        await run.inbox.each(work)

    return main


def prepare(folder: Path) -> None:
    (folder / "inbox").mkdir()
    folder.with_name("queue").mkdir()
    with (folder / "workspace.yaml").open("a") as file:
        file.write("redirect_to: ../queue\n")
    for text in TASKS:
        (folder / f"inbox/{text}.md").write_text(text)
    (folder / "inbox/m.yaml").write_bytes(inbox.message("hurry"))


def consume(folder: Path, outside: Path) -> str:
    """What the other one finds, it takes and forgets."""
    queue = folder.with_name("queue")
    found = [path for path in queue.iterdir() if path.is_file() and not path.name.startswith(".")]
    with folder.with_name("consumed").open("a") as file:
        file.writelines(f"{path.read_text()}\n" for path in found)
    for path in found:
        path.unlink()
    return ""


def result(folder: Path, outside: Path) -> dict[str, Any]:
    done = outside.read_text().splitlines() if outside.exists() else []
    left = [path.name for path in (folder / "inbox").iterdir() if path.is_file()]
    return {
        "done": sorted([*done, *folder.with_name("consumed").read_text().splitlines()]),
        "left": [name for name in left if name != "m.yaml"],
        # Three kills in one item pause the run as stuck. Then all tasks are handed on, and no item hears the message.
        "message": (folder / "state.json").read_text().count('"hurry"') + left.count("m.yaml"),
    }


SUBJECT = killing.Subject(make_agent, result, prepare, wrong=consume, starts=2)
