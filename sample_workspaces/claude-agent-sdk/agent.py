"""Books a flight to where the sun shines: an agent of the Claude Agent SDK whose tools survive `kill -9`.

`trip` is called from the top at every start, and continues the session. The tools are part of this program: a step,
and an effect.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    create_sdk_mcp_server,
    project_key_for_directory,
    query,
    tool,
)

from satchel import Key, NotDone, Run, agent, effect, step
from satchel.adapters.claude_agent_sdk import SatchelSessionStore, ask_people

BOOKINGS = Path("bookings.txt")

store = SatchelSessionStore("sessions")


@step
async def look_up(city: str) -> str:
    """A step: after a crash its result comes from the record."""
    print(f"asking for the weather in {city}")
    return f"{city}: {'sun' if city == 'Rome' else 'rain'}"


def is_booked(city: str, key: str) -> str:
    """Finds out after a crash whether `book_once` has happened."""
    if not BOOKINGS.exists() or key not in BOOKINGS.read_text():
        raise NotDone
    return f"a flight to {city} is booked"


@effect(verify=is_booked)
def book_once(key: Key, city: str) -> str:
    """An effect: it never happens twice without your knowledge."""
    with BOOKINGS.open("a") as file:
        file.write(f"{key} {city}\n")
    run = Run.current()
    if run is not None and run.settings["kill"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"a flight to {city} is booked"


@tool("weather", "The weather in a city", {"city": str})
async def weather(given: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": await look_up(given["city"])}]}


@tool("book", "Book a flight to a city", {"city": str})
async def book(given: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": await book_once(given["city"])}]}


@agent
async def trip(run: Run) -> str:
    session = str(uuid5(NAMESPACE_URL, run.id))
    known = await store.load({"project_key": project_key_for_directory("."), "session_id": session})
    os.chmod("claude.py", 0o755)
    options = ClaudeAgentOptions(
        session_store=store,
        resume=session if known else None,
        session_id=None if known else session,
        can_use_tool=ask_people(wait_for=0),
        mcp_servers={"flights": create_sdk_mcp_server("flights", tools=[weather, book])},
        # These two lines, and the one above, replace Claude Code by claude.py. Remove them to ask the real one.
        cli_path="./claude.py",
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    answer = ""
    async with run.uninterrupted("a turn of Claude"):  # a stop waits for its end
        async for message in query(prompt="Go on." if known else run.settings["prompt"], options=options):
            if isinstance(message, ResultMessage):
                answer = message.result or ""
    print(answer)
    return answer
