"""What `conversing` does, by an agent of the OpenAI Agents SDK."""

from __future__ import annotations

from functools import partial as bind
from pathlib import Path
from typing import Any

import agents
from openai_models import Answering, Items, called

import killing
from killing.conversing import STORY, TOGETHER, Call, result, wrong
from satchel import Key, NotDone, Run, agent
from satchel.adapters.openai_agents import SatchelModel, SatchelRunner, durable_tool

agents.set_tracing_disabled(True)


class Noting(Answering):
    """Notes each request outside, with the number of the turn."""

    def __init__(self, turns: list[list[Call]], note: Any):
        self._starts = [sum(map(len, turns[:turn])) for turn in range(len(turns))]
        self._turns, self._note = turns, note
        super().__init__(self._next, tick=killing.tick)

    def _next(self, items: Items) -> Any:
        made = called(items)
        turn = self._starts.index(made) if made in self._starts else len(self._turns)
        self._note(f"model {turn}")
        return [(tool, {"of": of}) for tool, of in self._turns[turn]] if turn < len(self._turns) else STORY


def make_agent(turns: list[list[Call]], outside: Path) -> Any:
    def note(what: str) -> None:
        with outside.with_suffix(".log").open("a") as file:
            file.write(f"{what}\n")
        killing.tick()

    @durable_tool
    async def look(of: str) -> str:
        note(f"look {of}")
        return of.upper()

    def was_sent(of: str, key: str) -> str:
        if f"{of} {key}" not in (outside.read_text().splitlines() if outside.exists() else []):
            raise NotDone
        return f"sent {of}"

    @durable_tool(effect=True, verify=was_sent)
    def send(key: Key, of: str) -> str:
        note(f"send {of}")
        with outside.open("a") as file:
            file.write(f"{of} {key}\n")
        killing.tick()
        return f"sent {of}"

    model = SatchelModel(Noting(turns, note), stream=True)
    helper = agents.Agent("helper", model=model, tools=[look, send])

    async def talk(run: Run[Any]) -> dict[str, Any]:
        done = await SatchelRunner.run(helper, "Look and send")
        items = done.to_input_list()
        returned = {item["call_id"]: item["output"] for item in items if item.get("type") == "function_call_output"}
        run.state["found"] = {"answer": done.final_output, "returned": returned}
        return run.state["found"]  # type: ignore[no-any-return]

    @agent
    async def main(run: Run[Any]) -> dict[str, Any]:
        return await run.scope("talk", talk, run)

    return main


SUBJECT = killing.Subject(bind(make_agent, TOGETHER), result, wrong=bind(wrong, TOGETHER))
