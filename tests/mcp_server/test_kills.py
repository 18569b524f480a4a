"""The server is killed again and again while a run goes on: it keeps nothing, so nothing is lost."""

from __future__ import annotations

import math
import multiprocessing
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cli.conftest import Make
from servers import free_ports
from waits import PATIENCE

import satchel
from satchel.runtime.faces.mcp import serve_mcp

KILLS = 25
ITEMS = 60

ASKING = """
from satchel import agent, effect

@effect
def note(text: str) -> str:
    with open({log!r}, "a") as file:
        file.write(text + "\\n")
    return text

async def work(run, item):
    answer = await run.ask(f"What about {{item.text}}?", wait_for=600)
    await note(f"{{item.id}} {{answer.decision}}")

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Questions", [f"question {{number}}" for number in range({items})])
    await run.todo.each(work)
    return "all answered"
"""

EXTENSIONS = {"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}}

pytestmark = pytest.mark.slow


class Lost(Exception):
    """The server was killed before it had answered."""


class Caller:
    """A client without a memory, except for what it was promised."""

    def __init__(self, client: httpx2.Client):
        self._client, self._number = client, 0

    def call(self, method: str, header: str, /, **params: Any) -> dict[str, Any]:
        """The result. KeyError for an error of the protocol."""
        self._number += 1
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": EXTENSIONS,
        }
        headers = {
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            "Mcp-Name": header,
            "Accept": "application/json, text/event-stream",
        }
        body = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": {**params, "_meta": meta}}
        try:
            found = self._client.post("/mcp", json=body, headers=headers).json()
        except (httpx2.TransportError, ValueError) as error:
            raise Lost from error
        result: dict[str, Any] = found["result"]
        return result


@contextmanager
def served(root: Path, port: int) -> Iterator[Any]:
    """A server in a process of its own, made of one that has imported everything. It is killed at the end at the
    latest."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["satchel.runtime.faces.mcp.protocol_server"])
    reader, writer = context.Pipe(duplex=False)
    options = {"allow": "start,answer,resume", "http": str(port), "tell": writer.send}
    process = context.Process(target=serve_mcp, args=(root,), kwargs=options)
    process.start()
    try:
        assert "serving MCP at" in reader.recv()
        yield process
    finally:
        process.kill()
        process.join()


def connected_to(port: int) -> httpx2.Client:
    return httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)


class Talk:
    """What the client of all these servers knows."""

    def __init__(self) -> None:
        self.tasks: set[str] = set()
        self.given: dict[str, list[str]] = {}  # answers, by question; several if a server was killed meanwhile
        self.promised: dict[str, str] = {}  # those that the server has acknowledged

    def go_on(self, caller: Caller, answer: str, most: float) -> None:
        """Start the run, and give this answer to at most so many questions, until it has completed. Lost if the server
        is killed before."""
        while not self.tasks:
            begun = caller.call("tools/call", "start", name="start", arguments={"run": "many"})
            self.tasks |= {begun["taskId"]} if begun["resultType"] == "task" else set()
        (task,) = self.tasks
        while (found := caller.call("tasks/get", task, taskId=task))["status"] != "completed":
            self.tasks.add(found["taskId"])
            for id in found.get("inputRequests", ()) if most else ():
                most -= 1
                response = {"action": "accept", "content": {"decision": answer}}
                self.given.setdefault(id, []).append(answer)
                with suppress(KeyError):  # an earlier server has written another answer, and was killed
                    caller.call("tasks/update", task, taskId=task, inputResponses={id: response})
                    self.promised[id] = answer


def test_a_killed_server_loses_or_doubles_something(make: Make, root: Path, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    log = tmp_path / "log.txt"
    folder = make(ASKING.format(log=str(log), items=ITEMS), "runs/many")
    (port,) = free_ports(1)
    talk = Talk()
    for number in range(KILLS):
        with served(folder.parent, port) as process, connected_to(port) as client, pytest.raises(Lost):
            threading.Timer(chance.uniform(0, 0.5), process.kill).start()
            talk.go_on(Caller(client), f"answer {number}", 1)
    with served(folder.parent, port), connected_to(port) as client:
        talk.go_on(Caller(client), "the last answer", math.inf)
    assert len(talk.tasks) == 1, talk.tasks
    answers = [row.record for row in satchel.open(folder).history.log(type="approval.answered")]
    assert len(answers) == len({each["id"] for each in answers}) == ITEMS
    recorded = {each["id"]: each["decision"] for each in answers}
    assert all(recorded[id] in given for id, given in talk.given.items())
    # An answer to what is no longer asked is acknowledged and ignored, as the protocol wants
    sure = {id: answer for id, answer in talk.promised.items() if len(talk.given[id]) == 1}
    assert {id: recorded[id] for id in sure} == sure and len(sure) > 10
    lines = log.read_text().splitlines()
    assert len(lines) == len({*lines}) == ITEMS
    print(f"{len(sure)} of {ITEMS} questions were answered once, the others again after a kill")
