"""A conversation in a bucket, corrected with another program: while the run is stopped, and while it goes on."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from servers import Server

from satchel import Item, Run, agent
from satchel.runtime.execution.running import Outcome, run
from satchel.runtime.live import folder_watch
from satchel.workspace.store import open_store

from .running import Gate, Told

NAME = "messages.jsonl"
DEFINITION = b"format: 1\nrun_id: talk\nagent: agent.py:main\n"


def make(gate: Gate) -> Any:
    async def talk(run: Run[Any], item: Item) -> None:
        run.messages.add("user", item.text)
        await asyncio.to_thread(gate.pass_through, item.text)
        run.messages.add("assistant", item.text.upper())

    @agent
    async def main(run: Run[Any]) -> list[Any]:
        if not run.todo.items:
            await run.plan(None, ["a", "b", "c"])
        await run.todo.each(talk)
        return [message["content"] for message in run.messages.all()]

    return main


class Bucket:
    def __init__(self, server: Server):
        self._server, self.url = server, server.place()
        self._bucket, _, self._prefix = self.url.removeprefix("s3://").partition("/")
        self.put("workspace.yaml", DEFINITION)

    def run(self, gate: Gate, told: Told | None = None) -> Outcome:
        store = open_store(self.url, self._server.storage_options())
        return run(store, make(gate), watch=told)

    def put(self, path: str, data: bytes) -> None:
        self._server.client.put_object(Bucket=self._bucket, Key=f"{self._prefix}/{path}", Body=data)

    def delete(self, path: str) -> None:
        self._server.client.delete_object(Bucket=self._bucket, Key=f"{self._prefix}/{path}")

    def lines(self) -> list[dict[str, Any]]:
        try:
            found = self._server.client.get_object(Bucket=self._bucket, Key=f"{self._prefix}/{NAME}")
        except self._server.client.exceptions.NoSuchKey:
            return []
        return [json.loads(line) for line in found["Body"].read().splitlines()]

    def said(self) -> list[Any]:
        return [line["content"] for line in self.lines()]

    def save(self, lines: list[dict[str, Any]]) -> None:
        self.put(NAME, "".join(json.dumps(line) + "\n" for line in lines).encode())


@pytest.mark.slow
def test_a_stopped_run_takes_it(seaweedfs: Server) -> None:
    bucket = Bucket(seaweedfs)
    assert bucket.run(Gate()).status == "completed"
    found = bucket.lines()
    bucket.save([{"role": "system", "content": "x"}, found[0] | {"content": "y"}, *found[2:4], {"cut": True}])
    bucket.run(Gate())
    assert bucket.said() == ["x", "y", "b", "B"]
    for lost in (lambda: bucket.delete(NAME), lambda: bucket.put(NAME, b""), lambda: bucket.save(bucket.lines()[:2])):
        lost()
        bucket.run(Gate())
        assert bucket.said() == ["x", "y", "b", "B"]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("cuts", [False, True])
def test_a_run_that_goes_on_takes_it(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch, cuts: bool) -> None:
    monkeypatch.setattr(folder_watch, "_REMOTE_RESCAN", 0.2)
    bucket, gate, told = Bucket(seaweedfs), Gate("b"), Told()
    outcome: list[Outcome] = []
    process = threading.Thread(target=lambda: outcome.append(bucket.run(gate, told)), daemon=True)
    process.start()
    try:
        gate.reach("b")
        waited = threading.Event()
        while len(bucket.lines()) < 2 and process.is_alive():
            waited.wait(0.05)
        found = bucket.lines()
        bucket.save([found[0], {"cut": True}] if cuts else [found[0], {"role": "system", "content": "x"}, found[1]])
        while not any(f"{NAME} was saved" in line for line in told.lines) and process.is_alive():
            waited.wait(0.05)
    finally:
        gate.open()
        process.join(60)
    assert outcome and outcome[0].status == "completed", told.lines
    expected = ["a", "b", "B", "c", "C"] if cuts else ["a", "x", "A", "b", "B", "c", "C"]
    assert outcome[0].result == bucket.said() == expected
