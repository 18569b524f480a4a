"""Every PUT and DELETE in a bucket has a condition, whatever makes it: what arrives late does nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from servers import BUCKET, Server

from faults.working import Machine, opened
from satchel import InboxTask, Item, Partial, Retry, Run, agent, step
from satchel.workspace import transfer
from satchel.workspace.base.errors import Conflicting, InvalidFile
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.lifecycle import opening

KINDS = {
    "journal",
    "checkpoints",
    "lease",
    "blobs",
    "partials",
    "inbox",
    "approvals",
    "pause",
    "definition",
    "outputs",
    "internal",
    "projections",
}


class Crash(BaseException):
    """Ends the process, as far as the run can tell."""


@step
async def large() -> str:
    return "x" * 100_000


@step(retry=Retry(attempts=2, first=0.0))
async def tell(out: Partial) -> str:
    recovered = out.recovered
    await out.write("once ")
    if recovered is None:
        raise ConnectionError("broken off")
    return out.text


@step
async def cut_off(out: Partial) -> str:
    recovered = out.recovered
    await out.write("and then")
    if recovered is None:
        raise Crash
    return out.text


async def nothing(run: Run[Any], item: Item) -> None: ...


@agent
async def helper(run: Run[Any]) -> None:
    await run.plan("Help", ["do it"])
    await run.todo.each(nothing)


async def work(run: Run[Any], item: Item) -> None:
    run.state["done"] = [*run.state.get("done", []), item.text]
    run.messages.add("user", item.text)
    await run.output("report.txt", item.text)
    match item.text:
        case "large":
            await large()
        case "tell":
            await tell()
        case "cut off":
            await cut_off()
        case "pause":
            await run.pause()
        case "ask":
            assert await run.ask("Go on?", choices=["yes", "no"], wait_for=0) == "yes"


async def answer(run: Run[Any], task: InboxTask) -> None:
    await run.output(f"{task.id}.md", task.text or "")


@agent
async def main(run: Run[Any]) -> None:
    if not run.todo.items:
        await run.plan("Everything", ["large", "tell", "cut off", "pause", "ask"])
    await run.todo.each(work)
    await run.spawn(helper, "helper")
    await run.inbox.each(answer)


class Person:
    """Works behind the run's back."""

    def __init__(self, server: Server, prefix: str):
        self._client, self._prefix = server.client, prefix

    def save(self, path: str, data: bytes) -> None:
        self._client.put_object(Bucket=BUCKET, Key=f"{self._prefix}/{path}", Body=data)

    def read(self, path: str) -> bytes:
        data: bytes = self._client.get_object(Bucket=BUCKET, Key=f"{self._prefix}/{path}")["Body"].read()
        return data

    def names(self, folder: str) -> list[str]:
        found = self._client.list_objects_v2(Bucket=BUCKET, Prefix=f"{self._prefix}/{folder}/").get("Contents", [])
        return [each["Key"].removeprefix(f"{self._prefix}/") for each in found]


def test_every_put_and_delete_has_a_condition(
    seaweedfs: Server, prefix: str, machines: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that writes files of each kind: streams, outputs, blobs, messages, a crash, edits that are refused and ones
    that contradict, a pause, a question, a sub-agent, an inbox, a move and a copy."""
    machine, person = machines[0], Person(seaweedfs, prefix)

    def run(*, ends: str) -> None:
        machine.store = opened(seaweedfs, machine.proxy.url, prefix)
        machine.run(main)
        assert machine.outcome is not None and machine.outcome.status == ends, (machine.error, machine.outcome)

    person.save("inbox/a.md", b"a task")
    person.save("inbox/b.yaml", b"[")
    with pytest.raises(Crash):
        machine.run(main)
    person.save("state.json", b"{")
    machine.run(main)
    assert isinstance(machine.error, InvalidFile)
    person.save("messages.jsonl", b"changed by hand")
    person.save("outputs/report.txt", b"changed by hand")
    run(ends="paused")
    state = person.read("state.json")
    person.save("state.json", state.replace(b'"large"', b'"one"'))
    person.save("pause.yaml", b"status: resume\n")
    run(ends="waiting")
    person.save("state.json", state.replace(b'"large"', b'"another"'))
    machine.run(main)
    assert isinstance(machine.error, Conflicting) and person.names("conflicts")
    with opening.opened(machine.store, "merge", Report(), choices={"state.json": "ours"}) as workspace:
        workspace.close()
    (question,) = person.names("approvals")
    person.save(question, re.sub(rb"(?m)^decision:.*", b"decision: yes", person.read(question)))
    run(ends="completed")
    for names in (
        "state.rejected.json",
        "messages.rejected.jsonl",
        "outputs/report.rejected.txt",
        "inbox/b.rejected.yaml",
        "inbox/done/a.md",
        "agents/helper/todo.md",
    ):
        assert person.read(names)
    for number, carry in enumerate((transfer.copy, transfer.move)):
        to = opened(seaweedfs, machine.proxy.url, f"{prefix}-{number}")
        carry(opened(seaweedfs, machine.proxy.url, prefix), to, by="a person")
        assert look(to).moment.status == "completed"

    puts = [each for each in machine.proxy.seen if each.method == "PUT"]
    assert {each.kind for each in puts} >= KINDS
    assert [each.key for each in puts if not each.condition] == []
    deletes = [each for each in machine.proxy.seen if each.method == "DELETE"]
    assert {each.kind for each in deletes} >= {"several", "lease", "partials", "inbox", "pause"}
    assert [(each.kind, each.key) for each in deletes if not each.condition] == []
