"""Books a flight to where the sun shines: a graph of LangGraph that survives `kill -9`.

`trip` is called from the top at every start. Tasks of the graph that have finished return their recorded results.
"""

from __future__ import annotations

import operator
import os
import signal
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from model import ask_model

from satchel import Key, NotDone, Run, agent, effect
from satchel.adapters.langgraph import SatchelSaver, durable

BOOKINGS = Path("bookings.txt")


class City(TypedDict):
    name: str


class Trip(TypedDict, total=False):
    cities: list[str]
    weather: Annotated[list[str], operator.add]
    booked: str


def is_booked(city: str, key: str) -> str:
    """Finds out after a crash whether `book` has happened."""
    if not BOOKINGS.exists() or key not in BOOKINGS.read_text():
        raise NotDone
    return f"a flight to {city} is booked"


@effect(verify=is_booked)
def book(key: Key, city: str) -> str:
    with BOOKINGS.open("a") as file:
        file.write(f"{key} {city}\n")
    run = Run.current()
    if run is not None and run.settings["kill"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"a flight to {city} is booked"


@durable
async def look(state: City) -> dict[str, Any]:
    said = await ask_model(f"How is the weather in {state['name']}?")
    return {"weather": [f"{state['name']}: {said}"]}


@durable
async def go(state: Trip) -> dict[str, Any]:
    city = next(each.partition(":")[0] for each in state["weather"] if each.endswith("sun"))
    if interrupt(f"May I book a flight to {city}?") == "deny":
        return {"booked": "nothing"}
    return {"booked": await book(city)}


builder = StateGraph(Trip)
builder.add_node(look)
builder.add_node(go)
builder.add_conditional_edges(START, lambda state: [Send("look", {"name": city}) for city in state["cities"]], ["look"])
builder.add_edge("look", "go")
builder.add_edge("go", END)
saver = SatchelSaver("threads")
graph = builder.compile(checkpointer=saver)


@agent
async def trip(run: Run) -> str:
    config: Any = {"configurable": {"thread_id": run.id}}
    has_begun = await saver.aget_tuple(config) is not None
    found = await graph.ainvoke(None if has_begun else Trip(cities=run.settings["cities"]), config)
    while "__interrupt__" in found:
        answer = await run.ask(found["__interrupt__"][0].value, ["approve", "deny"], wait_for=0)
        found = await graph.ainvoke(Command(resume=answer.decision), config)
    print(found["booked"])
    return str(found["booked"])
