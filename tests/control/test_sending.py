"""`send` from Python: what is a text, a file and data is told by its type, never guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Make

import satchel
from satchel.workspace.base.errors import InvalidFile, UsageError

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
