"""Runs for the server, and clients of the package `mcp` in this process."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mcp_types as types
import pytest
import warm
from cli.conftest import make
from mcp import Client
from mcp.client import advertise
from mcp_types import ElicitRequestFormParams, ElicitResult
from pydantic import ConfigDict

from satchel.runtime.faces.mcp import allowed_of
from satchel.runtime.faces.mcp.descriptions import Runs
from satchel.runtime.faces.mcp.protocol_server import RunServer
from satchel.runtime.faces.mcp.tasks import EXTENSION
from satchel.runtime.supervision import child

__all__ = ["make"]

LETTERS = """
from satchel import agent, effect, step

@effect
def post(to: str) -> str:
    return f"posted to {to}"

async def work(run, item):
    answer = await run.ask(f"May I {item.text}?", ["yes", "no"], wait_for=0)
    if answer.decision == "yes":
        await run.output(f"{item.id}.txt", await post(item.text))
    run.state[item.text] = answer.decision

@agent
async def main(run, copies: int = 1):
    if not run.todo.items:
        await run.plan("Letters", ["write to Ada", "write to Grace"])
    await run.todo.each(work)
    return {"letters": 2, "copies": copies}
"""


def serve(root: Path | str, allow: str = "") -> RunServer:
    return RunServer(Runs(root), allowed_of(allow))


@asynccontextmanager
async def connected(
    server: Any, *, has_tasks: bool = False, can_ask: bool = False, **options: Any
) -> AsyncIterator[Client]:
    """A client that declares so much."""
    options |= {"extensions": [advertise(EXTENSION)]} if has_tasks else {}
    async with Client(server, elicitation_callback=nobody if can_ask else None, **options) as client:
        yield client


async def nobody(context: Any, params: Any) -> ElicitResult:
    """The questions of a task are no requests of the server."""
    assert not isinstance(params, ElicitRequestFormParams)
    return ElicitResult(action="cancel")


async def call(client: Client, name: str, /, **arguments: Any) -> Any:
    """The structured content of a result that is no error."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    assert result.content[0].type == "text" and result.content[0].text
    return result.structured_content


async def refusal(client: Client, name: str, /, **arguments: Any) -> str:
    """The text of a result that is an error."""
    result = await client.call_tool(name, arguments)
    assert result.is_error and result.content[0].type == "text"
    return result.content[0].text


class TaskParams(types.RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class TaskRequest(types.Request[TaskParams, str]):
    name_param = "taskId"


class AnyResult(types.Result):
    model_config = ConfigDict(extra="allow")


async def ask(client: Client, method: str, task: str, **params: Any) -> dict[str, Any]:
    """The result of a request about a task, as it comes over the wire."""
    request = TaskRequest(method=method, params=TaskParams(task_id=task, **params))
    found = await client.session.send_request(request, AnyResult)
    return dict(found.model_extra or {}) | {"resultType": (found.model_extra or {}).get("resultType")}


async def until(client: Client, task: str, *statuses: str) -> dict[str, Any]:
    """The task, once it has one of these statuses. Asks more often than a client should, and agrees if it asks to be
    resumed."""
    while True:
        found = await ask(client, "tasks/get", task)
        resuming = [key for key in found.get("inputRequests", ()) if key.startswith("resume-")]
        if resuming:
            agreed = {"action": "accept", "content": {"resume": True}}
            await ask(client, "tasks/update", task, input_responses={resuming[0]: agreed})
        elif found["status"] in statuses:
            return found
        else:
            assert found["status"] == "working", found
            await asyncio.sleep(0.05)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 300))  # not for ever


@pytest.fixture(autouse=True)
def warm_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in the background are warm processes, too."""
    shim = SimpleNamespace(Popen=warm.Popen, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(child, "subprocess", shim)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path
