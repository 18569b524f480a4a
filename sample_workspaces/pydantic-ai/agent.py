"""Books a flight to where the sun shines: an agent of Pydantic AI that survives `kill -9`.

`trip` is called from the top at every start. What the model and the tools have answered comes from the record.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from model import RULES
from pydantic_ai import Agent

from satchel import NotDone, Run, agent
from satchel.adapters.pydantic_ai import SatchelDurability, as_effect, idempotency_key

BOOKINGS = Path("bookings.txt")

planner = Agent(RULES, name="planner", capabilities=[SatchelDurability(wait_for=0)])


@planner.tool_plain
async def weather(city: str) -> str:
    """A tool is a step: after a crash its result comes from the record."""
    print(f"asking for the weather in {city}")
    return f"{city}: {'sun' if city == 'Rome' else 'rain'}"


def is_booked(city: str, key: str) -> str:
    """Finds out after a crash whether `book` has happened. Takes the arguments of the tool, and its key."""
    if not BOOKINGS.exists() or key not in BOOKINGS.read_text():
        raise NotDone
    return f"a flight to {city} is booked"


@planner.tool_plain(requires_approval=True, metadata=as_effect(verify=is_booked))
def book(city: str) -> str:
    """A tool that changes the world outside is an effect: it never happens twice without your knowledge."""
    with BOOKINGS.open("a") as file:
        file.write(f"{idempotency_key()} {city}\n")
    run = Run.current()
    if run is not None and run.settings["kill"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"a flight to {city} is booked"


@agent
async def trip(run: Run) -> str:
    answer = await planner.run(run.settings["prompt"])
    print(answer.output)
    return answer.output
