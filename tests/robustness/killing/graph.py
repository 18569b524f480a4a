"""A graph of LangGraph with durable nodes: three rounds, each with four tasks at once that call a model and send a
letter, and one node that is not async.

`graph_saved` is the same with a saver of LangGraph, so finished tasks are not entered again; `graph_kept` with
`SatchelSaver`. Each call is noted outside.
"""

from __future__ import annotations

import json
import operator
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial as bind
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send

import killing
from satchel import NotDone, Run, agent, effect, step
from satchel.adapters.langgraph import durable
from satchel.runtime.agent import code

ROUNDS, LETTERS = 3, 4
code.of(__file__)  # searches all installed packages once, and not in each fork
Saver = Callable[[Path], AbstractAsyncContextManager[Any]]


class State(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    sent: Annotated[list[str], operator.add]
    round: int


@asynccontextmanager
async def no_saver(outside: Path) -> AsyncIterator[None]:
    yield None


def make_agent(saver: Saver, outside: Path) -> Any:
    def note(what: str) -> None:
        with outside.with_suffix(".log").open("a") as file:
            file.write(f"{what}\n")
        killing.tick()

    def was_sent(to: str) -> str:
        if to not in (outside.read_text().splitlines() if outside.exists() else []):
            raise NotDone
        return f"sent to {to}"

    @step
    async def think(about: str) -> str:
        note(about)
        return about.upper()

    @effect(verify=was_sent)
    async def send(to: str) -> str:
        killing.tick()
        with outside.open("a") as file:
            file.write(f"{to}\n")
        killing.tick()
        return f"sent to {to}"

    @durable
    async def plan(state: State) -> dict[str, Any]:
        said = await think(f"plan {state.get('round', 0)}")
        return {"messages": [AIMessage(said)], "round": state.get("round", 0) + 1}

    @durable
    async def write(order: dict[str, Any]) -> dict[str, Any]:
        first = await think(f"letter {order['to']}")
        sent = await send(order["to"])
        last = await think(f"check {order['to']}")
        return {"sent": [sent], "messages": [AIMessage(first), AIMessage(last)]}

    @durable
    def count(state: State) -> dict[str, Any]:
        killing.tick()
        return {"messages": [AIMessage(f"{len(state['sent'])} sent")]}

    def letters(state: State) -> list[Send]:
        return [Send("write", {"to": f"{state['round']}-{number}"}) for number in range(LETTERS)]

    def is_over(state: State) -> str:
        return END if state["round"] == ROUNDS else "plan"

    builder = StateGraph(State)
    for name, node in {"plan": plan, "write": write, "count": count}.items():
        builder.add_node(name, node)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", letters, ["write"])
    builder.add_edge("write", "count")
    builder.add_conditional_edges("count", is_over, ["plan", END])

    @agent
    async def main(run: Run) -> None:
        config: Any = {"configurable": {"thread_id": "one"}}
        async with saver(outside) as kept:
            graph = builder.compile(checkpointer=kept)
            has_begun = kept is not None and await kept.aget_tuple(config) is not None
            given = None if has_begun else {"messages": [HumanMessage("Write the letters")]}
            found = await graph.ainvoke(given, config)  # type: ignore[arg-type]

        async def keep() -> None:
            run.state["messages"] = [message.content for message in found["messages"]]
            run.state["sent"] = found["sent"]

        await run.scope("keep", keep)

    return main


def _calls() -> list[str]:
    letters = [
        f"{what} {turn}-{n}" for turn in range(1, ROUNDS + 1) for n in range(LETTERS) for what in ("letter", "check")
    ]
    return [*(f"plan {turn}" for turn in range(ROUNDS)), *letters]


def result(folder: Path, outside: Path) -> dict[str, Any]:
    state = json.loads((folder / "state.json").read_text())
    return {
        "found": state["data"],
        "status": state["status"],
        "effects": sorted(outside.read_text().splitlines()),
        "called": sorted({*outside.with_suffix(".log").read_text().splitlines()}),
        "left over": [str(path) for path in (folder / "steps").rglob("*")],
    }


def wrong(folder: Path, outside: Path) -> str:
    """Whether the last process has called something again that was on record when it started."""
    log, before = outside.with_suffix(".log"), outside.with_suffix(".before")
    lines = log.read_text().splitlines() if log.exists() else []
    seen, done = json.loads(before.read_text()) if before.exists() else (0, [])
    before.parent.mkdir(exist_ok=True)
    before.write_text(json.dumps([len(lines), _recorded(folder)]))
    now = lines[seen:]
    again = {call for call in now if call in done or now.count(call) > 1}
    return f"called again although it was on record, or twice in one process: {again}" if again else ""


def _recorded(folder: Path) -> list[str]:
    text = "\n".join(path.read_text() for path in sorted((folder / "journal").glob("*.jsonl")))
    return [call for call in _calls() if f'"call":"(\\"about\\":\\"{call}\\")"' in text]


def subject(saver: Saver) -> killing.Subject:
    return killing.Subject(bind(make_agent, saver), result, wrong=wrong)


SUBJECT = subject(no_saver)
