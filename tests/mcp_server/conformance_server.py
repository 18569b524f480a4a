"""The server with the tools that the scenarios about tasks call. Each makes a real run, and starts it as `start` does:
everything else is the server of `satchel mcp`.

Run in the folder tests/, with the folder of the runs and the port to listen at.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, os.getcwd())  # the folder of the tests

import mcp_types as types
import warm
from msgspec import Struct

from satchel.runtime.faces.http import address_of
from satchel.runtime.faces.mcp import ACTIONS, descriptions, protocol_server, tools
from satchel.runtime.faces.mcp.descriptions import Asking, Runs
from satchel.runtime.supervision import child
from satchel.workspace.formats import decoder

TICKING = """
import asyncio
from satchel import agent, step

@step
async def tick(number: int) -> int:
    await asyncio.sleep(0.1)
    return number

@agent
async def main(run, seconds: float = 0.0):
    for number in range(int(seconds * 10)):
        await tick(number)
    return {"seconds": seconds}
"""

WAITING = """
import asyncio
from pathlib import Path

HERE = Path(__file__).parent

async def until_its_task_is_known():
    while not (HERE / "known").exists():
        await asyncio.sleep(0.02)
"""

FAILING = f"""{WAITING}
from satchel import agent

@agent
async def main(run):
    await until_its_task_is_known()
    raise ValueError("this always fails")
"""

ASKING = """
import asyncio
from satchel import agent

CONFIRM = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}

@agent
async def main(run):
    answers = await asyncio.gather(*(run.ask(text, schema=CONFIRM, wait_for=0) for text in QUESTIONS))
    return [each.decision for each in answers]
"""

BREAKING = f"""{WAITING}
import os
from satchel import agent

@agent
async def main(run):
    await until_its_task_is_known()
    (HERE / "workspace.yaml").write_text("run_id: [")
    os._exit(1)
"""

AGENTS = {
    "slow_compute": TICKING,
    "failing_job": FAILING,
    "protocol_error_job": BREAKING,
    "confirm_delete": f"QUESTIONS = ['May I delete it?']\n{ASKING}",
    "multi_input": f"QUESTIONS = ['May I go left?', 'May I go right?']\n{ASKING}",
}
NEEDS_TASKS = ("failing_job",)
_numbers = itertools.count(1)


class Greeting(Struct):
    name: str = ""


class Anything(Struct):
    seconds: float | None = None


def greet(asking: Asking, wanted: Greeting) -> Greeting:
    return wanted


def started(name: str) -> tools.Tool:
    """A tool that makes a run of this agent, and starts it."""

    def start(asking: Asking, wanted: Anything) -> descriptions.RunSummary:
        run = f"{name}-{next(_numbers)}"
        folder = Path(asking.runs.root, run)
        folder.mkdir()
        (folder / "agent.py").write_text(AGENTS[name])
        run_id = run.replace("_", "-")
        (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {run_id}\nagent: agent.py:main\n")
        handle = asking.runs.find(run)
        tools.begin(handle, input=None if wanted.seconds is None else {"seconds": wanted.seconds})
        return asking.status(handle)

    return tools.Tool(name, name, f"Run {name}.", Anything, descriptions.RunSummary, start, is_idempotent=False)


def make_known(run: Path) -> None:
    (run / "known").touch()


class ConformanceServer(protocol_server.RunServer):
    """With the tools of the scenarios besides."""

    def __init__(self, runs: Runs, allowed: frozenset[str]):
        super().__init__(runs, allowed)
        more = [tools.Tool("greet", "Greet", "Say hello.", Greeting, Greeting, greet), *map(started, AGENTS)]
        self._tools |= {each.name: each for each in more}
        tools._TAKEN.update((each.name, decoder(each.takes)) for each in more)

    async def _call_tool(self, ctx: protocol_server.Context, params: types.CallToolRequestParams) -> object:
        if params.name in NEEDS_TASKS and not protocol_server._client(ctx).has_tasks:
            raise protocol_server.needs_tasks()
        if params.name == "greet":
            text = f"Hello, {(params.arguments or {}).get('name')}!"
            return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=params.arguments)
        result = await super()._call_tool(ctx, params)
        if isinstance(result, dict):  # a task
            make_known(Path(self._runs.root, descriptions.run_of_task(result["taskId"])))
        return result


if __name__ == "__main__":
    protocol_server.STARTING = (*protocol_server.STARTING, *AGENTS)  # type: ignore[assignment]
    protocol_server.RunServer = ConformanceServer  # type: ignore[misc]
    child.subprocess = SimpleNamespace(Popen=warm.Popen, DEVNULL=subprocess.DEVNULL)  # type: ignore[assignment]
    protocol_server.over_http(Runs(sys.argv[1]), frozenset(ACTIONS), address_of(sys.argv[2]), (), print)
