"""An agent of the OpenAI Agents SDK that talks three turns in a session: no item of it is lost, doubled or without its
counterpart."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import agents
from openai_models import Answering, Items, called, outputs

import killing
from satchel import Key, Run, agent
from satchel.adapters.openai_agents import SatchelModel, SatchelRunner, SatchelSession, durable_tool

agents.set_tracing_disabled(True)
TURNS = 3


class Ticking(SatchelSession):
    async def add_items(self, items: list[Any]) -> None:
        killing.tick()
        await super().add_items(items)
        killing.tick()

    async def pop_item(self) -> Any:
        killing.tick()
        found = await super().pop_item()
        killing.tick()
        return found


def answer(items: Items) -> Any:
    prompts = sum(item.get("role") == "user" for item in items)
    if called(items) < 2 * prompts:
        return [("look", {"of": f"{prompts}"}), ("send", {"to": f"{prompts}"})]
    return f"turn {prompts}: {outputs(items)[-2:]}"


def session_of(outside: Path) -> SatchelSession:
    return Ticking("talk", outside.with_suffix(".sessions"))


def make_agent(outside: Path) -> Any:
    @durable_tool
    async def look(of: str) -> str:
        killing.tick()
        return of.upper()

    @durable_tool(effect=True, idempotent=True)
    def send(key: Key, to: str) -> str:
        killing.tick()
        return f"sent {to}"

    helper = agents.Agent("helper", model=SatchelModel(Answering(answer, tick=killing.tick)), tools=[look, send])

    async def turn(number: int) -> str:
        session = session_of(outside)
        done = await SatchelRunner.run(helper, f"prompt {number}", session=session)
        if number == 1:  # what was said last is taken back, and said again
            last = await session.pop_item()
            await session.add_items([last])
        return str(done.final_output)

    @agent
    async def main(run: Run[Any]) -> list[str]:
        return [await run.scope(f"turn {number}", turn, number) for number in range(TURNS)]

    return main


def result(folder: Path, outside: Path) -> dict[str, Any]:
    session = session_of(outside)
    items = asyncio.run(session.get_items())
    session.close()
    state = json.loads((folder / "state.json").read_text())
    prompts = [item["content"] for item in items if item.get("role") == "user"]
    assert prompts == [f"prompt {number}" for number in range(TURNS)], prompts
    return {"status": state["status"], "result": state["result"], "items": items}


SUBJECT = killing.Subject(make_agent, result)
