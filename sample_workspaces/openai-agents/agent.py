"""Books a flight to where the sun shines: an agent of the OpenAI Agents SDK that survives `kill -9`.

`trip` is called from the top at every start. What the model and the tools have answered comes from the record.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from agents import Agent
from model import Rules

from satchel import Key, NotDone, Run, agent
from satchel.adapters.openai_agents import SatchelModel, SatchelRunner, durable_tool

BOOKINGS = Path("bookings.txt")


@durable_tool
async def weather(city: str) -> str:
    """A tool is a step: after a crash its result comes from the record."""
    print(f"asking for the weather in {city}")
    return f"{city}: {'sun' if city == 'Rome' else 'rain'}"


def is_booked(city: str, key: str) -> str:
    """Finds out after a crash whether `book` has happened. Takes the arguments of the tool, and its key."""
    if not BOOKINGS.exists() or key not in BOOKINGS.read_text():
        raise NotDone
    return f"a flight to {city} is booked"


@durable_tool(effect=True, verify=is_booked, needs_approval=True)
def book(key: Key, city: str) -> str:
    """A tool that changes the world outside is an effect: it never happens twice without your knowledge."""
    with BOOKINGS.open("a") as file:
        file.write(f"{key} {city}\n")
    run = Run.current()
    if run is not None and run.settings["kill"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"a flight to {city} is booked"


planner = Agent("planner", model=SatchelModel(Rules()), tools=[weather, book])


@agent
async def trip(run: Run) -> str:
    answer = await SatchelRunner.run(planner, run.settings["prompt"], wait_for=0)
    print(answer.final_output)
    return str(answer.final_output)
