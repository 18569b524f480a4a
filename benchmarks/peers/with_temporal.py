"""Temporal with its server for development, on SQLite: activities of one workflow, which tell every second that they
live."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from .pairing import Pairing

_ADDRESS = "TEMPORAL_ADDRESS"
_LONG = timedelta(minutes=5)
_SILENT = timedelta(seconds=3)


@contextmanager
def serving(folder: Path, environ: dict[str, str]) -> Iterator[None]:
    """The server, which lives on when the worker is killed. Its address comes into the environment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    environ[_ADDRESS] = f"127.0.0.1:{port}"
    words = ["server", "start-dev", "--headless", "--port", str(port), "--db-filename", str(folder / "temporal.sqlite")]
    with open(folder / "temporal.log", "wb") as log:
        server = subprocess.Popen([Path(sys.executable).with_name("temporal"), *words], stdout=log, stderr=log)
    try:
        yield
    finally:
        server.terminate()
        server.wait()


@workflow.defn
class Calls:
    @workflow.run
    async def run(self, total: int) -> None:
        for number in range(total):
            await workflow.execute_activity(
                "answer", number, start_to_close_timeout=_LONG, heartbeat_timeout=_SILENT, result_type=str
            )


def activities(folder: Path, pairing: Pairing) -> None:
    @activity.defn(name="answer")
    async def answer(number: int) -> str:
        body = asyncio.create_task(asyncio.to_thread(pairing.body))
        while not body.done():
            activity.heartbeat()
            await asyncio.wait([body], timeout=1)
        return body.result()

    async def work() -> None:
        client = await _connected()
        runner = UnsandboxedWorkflowRunner()
        async with Worker(client, task_queue="asking", workflows=[Calls], activities=[answer], workflow_runner=runner):
            policy = WorkflowIDConflictPolicy.USE_EXISTING
            handle = await client.start_workflow(
                Calls.run, pairing.total, id="asking", task_queue="asking", id_conflict_policy=policy
            )
            await handle.result()

    asyncio.run(work())


async def _connected() -> Client:
    while True:  # the server needs a moment
        try:
            return await Client.connect(os.environ[_ADDRESS])
        except (RPCError, RuntimeError):
            await asyncio.sleep(0.2)
