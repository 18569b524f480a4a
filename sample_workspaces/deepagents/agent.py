"""Books a flight to where the sun shines: a deep agent that survives `kill -9`, and whose files are in a folder.

`trip` is called from the top at every start. What the model and the tools have answered comes from the record.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from deepagents import create_deep_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from model import Script

from satchel import Key, NotDone, Run, agent, effect
from satchel.adapters.deepagents import SatchelBackend, SatchelMiddleware, ainvoke

BOOKINGS = Path("bookings.txt")


@tool
def weather(city: str) -> str:
    """A tool is a step: after a crash its result comes from the record."""
    print(f"asking for the weather in {city}")
    return "sun"


def is_booked(city: str, key: str) -> str:
    """Finds out after a crash whether `book` has happened."""
    if not BOOKINGS.exists() or key not in BOOKINGS.read_text():
        raise NotDone
    return f"a flight to {city} is booked"


@tool
@effect(verify=is_booked)
def book(key: Key, city: str) -> str:
    """A tool that changes the world outside is an effect: it never happens twice without your knowledge."""
    with BOOKINGS.open("a") as file:
        file.write(f"{key} {city}\n")
    run = Run.current()
    if run is not None and run.settings["kill"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"a flight to {city} is booked"


files = SatchelBackend("memory")
planner = create_deep_agent(
    Script(),
    tools=[weather, book],
    backend=files,
    middleware=[SatchelMiddleware(todos=files), TodoListMiddleware()],
    interrupt_on={"book": True},
    checkpointer=InMemorySaver(),
)


@agent
async def trip(run: Run) -> str:
    done = await ainvoke(planner, {"messages": [("user", run.settings["prompt"])]}, wait_for=0)
    return str(done["messages"][-1].content)
