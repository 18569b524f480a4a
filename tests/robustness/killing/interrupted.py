"""A conversation whose first answer is interrupted by a message. The model is slow to end it: it waits until it knows.

The answer, cut off in the same place, and the message must each be there once, whenever the run was killed.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from waits import NOBODY_SAVES

import killing
from satchel import Partial, Run, agent, step
from satchel.workspace.inbound import inbox
from satchel.workspace.views import guarded_files

WORDS = [f"word{number} " for number in range(6)]
guarded_files.WAITS = NOBODY_SAVES  # no one is in the middle of saving


def make_agent(outside: Path) -> Any:
    folder = outside.with_name("run") / "inbox"

    def send() -> None:
        """A person sends it, once."""
        if not outside.exists():
            (folder / ".m.yaml.part").write_bytes(inbox.message("hurry"))
            killing.tick()
            os.replace(folder / ".m.yaml.part", folder / "m.yaml")
            outside.touch()
            killing.tick()

    @step
    async def answer(question: str, out: Partial) -> dict[str, Any]:
        for word in WORDS[len(out.text.split()) :]:
            if question == "tell" and word == WORDS[3]:
                send()
                while not out.interrupted:  # noqa: ASYNC110 -- it is this that is tested
                    await asyncio.sleep(0.001)
                break
            await out.write(word)
        return {"text": out.text, "interrupted": out.interrupted}

    async def turn(run: Run[Any]) -> bool:
        for message in await run.inbox.take("message"):
            run.messages.add("user", message.text)
        found = await answer(run.messages.slice()[-1]["content"])
        run.messages.add("assistant", found)
        return bool(found["interrupted"])

    async def begin(run: Run[Any]) -> None:
        run.messages.add("user", "tell")

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("begin", begin, run)
        turns = 0
        while await run.scope(f"turn {turns}", turn, run):
            turns += 1

    return main


def prepare(folder: Path) -> None:
    (folder / "inbox").mkdir()


def result(folder: Path, outside: Path) -> dict[str, Any]:
    segments = sorted((folder / "journal").iterdir())
    rows = [json.loads(row) for path in segments for row in path.read_text().splitlines()]
    said = [json.loads(line) for line in (folder / "messages.jsonl").read_text().splitlines()]
    return {
        "said": [(each["role"], each["content"]) for each in said],
        "how": [row.get("how") for row in rows if row["type"] == "step.completed" and row["step"] == "answer"],
        "left": [path.name for path in (folder / "inbox").iterdir() if path.is_file()],
        "done": sum(row["type"] == "task.done" for row in rows),
    }


SUBJECT = killing.Subject(make_agent, result, prepare)
