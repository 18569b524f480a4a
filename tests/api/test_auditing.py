"""`log(audit=True)`: what people and processes did to a run is a record, and says who did it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import PLAIN, Cli, Make
from linked import parsed
from servers import Server

import satchel
from satchel.runtime.api import Handle
from satchel.workspace.base import myself
from satchel.workspace.inspect import Report, lease
from satchel.workspace.lifecycle import opened

from .test_answering import GRANTING
from .test_in_a_bucket import put

STOPPING = """
from satchel import agent

async def work(run, item):
    run.state[item.text] = "done"
    if item.text == "b" and "go" not in run.state:
        raise SystemExit(3)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["a", "b"])
    await run.todo.each(work)
"""


def audit(handle: Handle) -> list[tuple[str, str]]:
    return [(row.record["type"], row.who) for row in handle.history.log(audit=True)]


def opening(handle: Handle) -> dict[str, Any]:
    """The record of the last opening."""
    return [*handle.history.log(type="opened")][-1].record


def did(handle: Handle, type: str) -> set[str]:
    return {who for each, who in audit(handle) if each == type}


def test_what_is_done_to_a_completed_run_is_told_as_a_repair(make: Make) -> None:
    handle = satchel.open(make(STOPPING.replace("raise SystemExit(3)", "pass")))
    assert handle.run().status == "completed"
    handle.history.rewind(to="^2")
    handle.run()
    handle.history.redo("^1")
    assert handle.run().status == "completed"
    (Path(handle.url) / "workspace.yaml").write_text(
        (Path(handle.url) / "workspace.yaml").read_text() + "keep: {checkpoints: 1}\n"
    )
    handle.prune()
    assert handle.run().status == "completed"  # nothing is left to do
    assert [row.record["why"] for row in handle.history.log(type="opened")] == [
        "run",
        "rewind",
        "run",
        "redo",
        "run",
        "prune",
    ]


def test_a_deed_has_no_record_or_no_name(make: Make) -> None:
    folder = make(GRANTING)
    (folder / "todo.md").write_text("- [ ] Grant?\n- [ ] How much?\n")
    handle = satchel.open(folder)
    handle.run()
    process = f"{myself()}, process {opening(handle)['pid']}"
    assert (opening(handle)["by"], did(handle, "opened"), did(handle, "closed")) == (myself(), {process}, {process})
    assert did(handle, "plan.changed") == did(handle, "edited") | {myself()}
    handle.answer("approve", by="Ada")
    handle.pause(reason="a look", by="Bob")
    state = folder / "state.json"
    state.write_text(state.read_text().replace('"data": {}', '"data": {"x": 1}'))
    handle.resume()
    assert did(handle, "approval.answered") == {"Ada"} and did(handle, "pause.requested") == {"Bob"}
    assert did(handle, "edited") == did(handle, "resumed") == {myself()}
    assert did(handle, "checkpoint.saved") == did(handle, "paused") == {process}
    types = {type for type, _ in audit(handle)}
    assert types <= {
        "opened",
        "closed",
        "checkpoint.saved",
        "edited",
        "approval.answered",
        "pause.requested",
        "paused",
        "resumed",
        "plan.changed",
    }
    assert len([*handle.history.log()]) > len(audit(handle))


def test_a_move_or_an_adoption_is_not_on_record(make: Make, tmp_path: Path) -> None:
    handle = satchel.open(make(GRANTING))
    handle.run()
    handle.move(tmp_path / "b", by="Ada")
    moved = satchel.open(tmp_path / "b")
    moved.recover()
    assert opening(moved)["arrived"].startswith(f"it was moved here from {handle.url}, by Ada at 20")
    moved.recover()
    assert "arrived" not in opening(moved)
    moved.copy(tmp_path / "c", by="Bob")
    copied = satchel.open(tmp_path / "c")
    copied.recover(adopt=True)
    assert opening(copied)["arrived"].startswith(
        f"it was opened at {moved.url} before; this place adopts it, as --adopt says; Bob copied it from {moved.url} at"
    )
    assert (opening(copied)["by"], opening(copied)["why"]) == (myself(), "recover")


def test_a_cut_of_the_journal_is_not_on_record(make: Make) -> None:
    handle = satchel.open(make(PLAIN))
    handle.run()
    (segment,) = (Path(handle.url) / "journal").iterdir()
    last = parsed(segment.read_bytes())[-1].seq
    handle.recover(truncate_at=last - 2)
    assert [*handle.history.log()][-1].record["type"] == "closed"
    folder = Path(handle.url) / opening(handle)["cut_off"]
    assert folder.parent.name == "cut-off" and [*folder.iterdir()]


def test_a_return_to_a_checkpoint_has_no_name(make: Make) -> None:
    folder = make(STOPPING)
    handle = satchel.open(folder)
    with pytest.raises(satchel.errors.AgentError):
        handle.run()
    handle.stop(by="Ada")
    assert handle.run().status == "paused"
    (folder / "agent.py").write_text(STOPPING.replace("raise SystemExit(3)", "pass"))
    assert handle.resume(from_checkpoint=True).status == "completed"
    assert did(handle, "rewound") == did(handle, "resumed") == {myself()} and "Ada" in did(handle, "pause.requested")


def test_a_take_over_is_not_on_record(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    url = seaweedfs.place()
    put(seaweedfs, f"{url}/workspace.yaml", "format: 1\nrun_id: demo-1a2b\nagent: agent.py:main\n")
    handle = satchel.open(url)
    with opened(handle.store, "run", Report()):
        assert "took_over" not in opening(handle)
        pid = opening(handle)["pid"]
        while lease.read(handle.store) is None:  # its first heartbeat
            time.sleep(0.01)
            handle.store.refresh()
        satchel.open(url).recover(take_over=True)
        assert opening(handle)["took_over"].startswith(f"process {pid} on ")


def test_the_audit_is_printed_otherwise(make: Make, cli: Cli) -> None:
    folder = make(GRANTING)
    cli("run", folder)
    cli("answer", folder, "a1", "approve", "--by", "Ada")
    lines = cli("log", "--audit", folder).stdout.splitlines()
    assert any("  Ada  answered    a1 by Ada" in line for line in lines) and not any("begun" in line for line in lines)
    told = [json.loads(row) for row in cli("log", "--audit", "--json", "-n", "3", folder).stdout.splitlines()]
    assert len(told) == 3 and all(each["who"] for each in told)
    assert "who" not in json.loads(cli("log", "--json", "-n", "1", folder).stdout)
