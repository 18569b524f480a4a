"""Three agents that talk. Every answer is made of the slice that the model was shown, so a slice that differs after a
kill shows in what is said from then on."""

from __future__ import annotations

import asyncio
import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import killing
from satchel import Item, Run, agent, step

QUESTIONS = 6
FILES = ("", "agents/author/", "agents/author/agents/critic/")


@step
async def ask(prompt: list[dict[str, Any]]) -> dict[str, Any]:
    shown = json.dumps(prompt, sort_keys=True)
    return {"text": blake2b(shown.encode(), digest_size=6).hexdigest(), "shown": len(prompt)}


async def talk(run: Run[Any], item: Item) -> None:
    run.messages.add("user", f"{run.agent or 'root'}: {item.text} " + "x" * 40)
    run.messages.add("assistant", await ask(run.messages.slice(last=5)))
    run.messages.add("assistant", await ask(run.messages.slice(tokens=70)))
    run.messages.add("system", len(run.messages))


async def plan_and_talk(run: Run[Any]) -> None:
    if not run.todo.items:
        await run.plan("Talk", [f"question {number}" for number in range(QUESTIONS)])
    await run.todo.each(talk)


@agent
async def critic(run: Run[Any]) -> int:
    await plan_and_talk(run)
    return len(run.messages)


@agent
async def author(run: Run[Any]) -> int:
    said, _ = await asyncio.gather(run.spawn(critic, "critic"), plan_and_talk(run))
    return said + len(run.messages)


@agent
async def root(run: Run[Any]) -> int:
    said, _ = await asyncio.gather(run.spawn(author, "author"), plan_and_talk(run))
    return said + len(run.messages)


def said(folder: Path, outside: Path) -> list[list[tuple[str, Any]]]:
    """What each agent's file says."""
    files = [(folder / path / "messages.jsonl").read_text() for path in FILES]
    rows = [[json.loads(line) for line in text.splitlines()] for text in files]
    assert [len(each) for each in rows] == [4 * QUESTIONS] * len(FILES)
    assert all([row["seq"] for row in each] == sorted({row["seq"] for row in each}) for each in rows)
    return [[(row["role"], row["content"]) for row in each] for each in rows]


SUBJECT = killing.Subject(lambda outside: root, said)
