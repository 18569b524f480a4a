"""`send` from Python: what is a text, a file and data is told by its type, never guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Make
from crash import memory
from crash.memory import ROOT, Memory

import satchel
from satchel.runtime.api import Handle
from satchel.workspace.base.errors import InvalidFile, KeyReused, UsageError
from satchel.workspace.store import DiskStore

TAKING = """
from satchel import agent

async def work(run, task):
    heard = [each.text for each in await run.inbox.take("message")]
    run.state.setdefault("seen", []).append([task.text or task.data, heard])

@agent
async def main(run):
    await run.inbox.each(work)
"""


def test_what_is_sent_is_not_what_arrives(make: Make, tmp_path: Path) -> None:
    folder = make(TAKING)
    (tmp_path / "order.yaml").write_text("customer: 7\n")
    handle = satchel.open(folder)
    data = {"due": "22:30", "items": ["no", None, 1.5], "nested": {"a": []}}
    sent = handle.send("order.yaml", tmp_path / "order.yaml", data, ["a list"])
    assert [each.kind for each in sent] == ["task"] * 4
    assert all((folder / each.file).is_file() for each in sent)
    assert handle.send("no: 22:30", message=True)[0].kind == "message"
    assert handle.run().status == "completed"
    seen = json.loads((folder / "state.json").read_text())["data"]["seen"]
    assert [task for task, _ in seen] == ["order.yaml\n", {"customer": 7}, data, ["a list"]]
    assert [message for _, heard in seen for message in heard] == ["no: 22:30"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        (Path("/nowhere/at all.md"), "no such file"),
        (Path("/"), "is a folder"),
        ({1: 2}, "can't be sent"),
        ({"a": float("nan")}, "not JSON"),
        (b"bytes", "not JSON"),
        ({"kind": "letter"}, "task or message"),
        (json.loads("[" * 900 + "]" * 900), "nested levels"),
    ],
)
def test_nothing_is_refused_or_half_is_sent(make: Make, content: Any, said: str) -> None:
    folder = make(TAKING)
    with pytest.raises((UsageError, InvalidFile), match=said):
        satchel.open(folder).send("a good one", content)
    assert not (folder / "inbox").exists()


def test_data_is_sent_as_a_message(make: Make) -> None:
    with pytest.raises(UsageError, match="a message must be a text"):
        satchel.open(make(TAKING)).send({"a": 1}, message=True)


def test_a_key_that_comes_again_makes_a_second_task(make: Make) -> None:
    folder = make(TAKING)
    handle = satchel.open(folder)
    (first,) = handle.send("count the stars", key="order 17")
    assert handle.send("count the stars", key="order 17") == [first]
    (other,) = handle.send("count the stars", key="order 18")
    with pytest.raises(KeyReused, match="was used for another task"):
        handle.send("count the moons", key="order 17")
    with pytest.raises(UsageError, match="a key is for one task"):
        handle.send("one", "two", key="order 19")
    assert sorted(each.name for each in (folder / "inbox").iterdir()) == sorted(
        Path(each.file).name for each in (first, other)
    )
    assert handle.run().status == "completed"
    for key in ("order 17", "order 18"):
        assert handle.send("count the stars", key=key)[0].file in (first.file, other.file)
    assert not [*(folder / "inbox").glob("*.md")]
    assert len([*(folder / "inbox" / "done").iterdir()]) == 2
    assert handle.run().status == "completed"
    assert len(json.loads((folder / "state.json").read_text())["data"]["seen"]) == 2


def test_two_processes_send_one_key_at_the_same_moment(make: Make) -> None:
    """Neither has seen the file of the other."""
    folder = make(TAKING)
    handle = satchel.open(folder)
    (first,) = handle.send("count the stars", key="order 17")

    def again(name: str) -> Path:
        path = folder / first.file
        copy = path.with_name(path.name.replace(path.name[:8], name))
        copy.write_text("count the stars\n")
        return copy

    double, edited = again("20990101"), again("20990102")
    edited.write_text("count the moons, too\n")
    assert handle.status().waiting == 2
    assert handle.run().status == "completed"
    assert [task for task, _ in json.loads((folder / "state.json").read_text())["data"]["seen"]] == [
        "count the stars\n",
        "count the moons, too\n",
    ]
    double = again("20990103")
    assert handle.run().status == "completed"
    assert len(json.loads((folder / "state.json").read_text())["data"]["seen"]) == 2
    (folder / "inbox" / "done" / edited.name).unlink()
    (folder / "inbox" / "done" / Path(first.file).name).rename(folder / first.file)  # a person wants it again
    assert handle.run().status == "completed" and not double.exists()
    assert len(json.loads((folder / "state.json").read_text())["data"]["seen"]) == 3


def test_a_power_failure_takes_a_task_whose_sender_was_killed_and_tried_again() -> None:
    """The first sender may be killed between the name of the file and its sync, and the second one finds the file."""
    before = memory.planted({"workspace.yaml": b"format: 1\nrun_id: letters-1\nagent: agent.py:main\n"})
    system = Memory(before)
    send(system)
    assert len(system.log) > 5
    for step in system.log:
        again = Memory(step.nodes)
        file = send(again)
        assert durable(again).get(file) == b"count the stars\n", f"killed after {step.call}"


def send(system: Memory) -> str:
    (sent,) = Handle(DiskStore(ROOT, system), ROOT).send("count the stars", key="order 17")
    return sent.file


def durable(system: Memory) -> dict[str, bytes]:
    """What a power failure leaves at least."""
    left: memory.Nodes = {}
    for number, node in system.nodes.items():
        if isinstance(node, memory.Folder):
            left[number] = memory.Folder(node.durable, node.durable, ())
        else:
            left[number] = node._replace(data=node.data[: node.synced])
    return memory.files(left)


def test_a_key_is_forgotten_when_the_run_is_cancelled(make: Make) -> None:
    folder = make(TAKING)
    handle = satchel.open(folder)
    (first,) = handle.send({"customer": 7}, key="a")
    assert handle.cancel().status == "cancelled"
    assert handle.send({"customer": 7}, key="a") == [first]
    with pytest.raises(UsageError, match="was cancelled"):
        handle.send({"customer": 7}, key="b")
