"""`check` from Python: what is wrong is in the result, and nothing is changed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from cli.conftest import Make, contents

import satchel
from satchel.runtime.status import check, place
from satchel.workspace.base.errors import UsageError
from satchel.workspace.inspect import lease
from satchel.workspace.journal import segment_log
from satchel.workspace.store import DiskStore

from .test_answering import GRANTING


def test_what_is_in_order_is_not(make: Make, tmp_path: Path) -> None:
    folder = make(GRANTING)
    handle = satchel.open(folder)
    handle.run()
    before = contents(folder)
    checked = asyncio.run(handle.check_async())
    assert not checked.problems and not checked.planned and not checked.is_running and not checked.locks_fail
    assert checked.moment and checked.moment.status == "waiting" and [each.id for each in checked.questions] == ["a1"]
    assert checked.abilities.lock and checked.url == str(folder) and contents(folder) == before
    with pytest.raises(UsageError, match="is not a workspace"):
        satchel.open(tmp_path).check()


def test_a_fault_is_not_found(make: Make) -> None:
    folder = make()
    handle = satchel.open(folder)
    handle.run()
    (folder / "outputs/1.txt").unlink()
    (folder / "state.json").write_text('{"data": ')
    found = {each.file: each for each in handle.check().problems}
    assert found["outputs/1.txt"].expected == "the output that the run made" and found["outputs/1.txt"].remedy
    assert found["state.json"].place.startswith("line 1") and "state.json, line 1" in str(found["state.json"])


def test_records_that_only_the_history_misses_are_overlooked(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run goes on from its checkpoint without them."""
    monkeypatch.setattr(segment_log, "SEGMENT_BYTES", 1000)
    monkeypatch.setattr(segment_log, "MANY", 10**6)
    folder = make()
    handle = satchel.open(folder)
    handle.run()
    _, second, last, *_ = sorted(folder.glob("journal/*.jsonl"))
    assert not handle.check().problems
    second.unlink()
    (found,) = handle.check().problems
    assert found.found == f"records {int(second.stem)} to {int(last.stem) - 1} are missing before it" and found.remedy
    assert found.file == f"journal/{last.name}"


def test_a_state_json_from_before_the_first_commit_is_a_fault_where_the_journal_is_damaged(make: Make) -> None:
    """Satchel writes `"data": null` before the agent has a state, and only the journal tells whether it has one."""
    folder = make(GRANTING)
    handle = satchel.open(folder)
    handle.run()
    (folder / ".satchel/schemas/data.json").write_text('{"type": "object"}')
    state, journal = folder / "state.json", next(folder.glob("journal/*.jsonl"))
    state.write_text(json.dumps(json.loads(state.read_text()) | {"data": None}))
    journal.write_bytes(journal.read_bytes().replace(b'"type":"configured"', b'"type":"confidured"'))
    for checkpoint in folder.glob("checkpoints/*.json"):
        checkpoint.unlink()
    assert {each.file for each in handle.check().problems} == {f"journal/{journal.name}"}
    state.write_text(json.dumps(json.loads(state.read_text()) | {"data": []}))
    assert "state.json" in {each.file for each in handle.check().problems}


def test_a_file_that_a_process_is_just_writing_is_a_fault(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make()
    handle = satchel.open(folder)
    handle.run()
    path, waits = folder / "outputs/1.txt", list[float]()
    data = path.read_bytes()
    path.unlink()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        path.write_bytes(data)

    monkeypatch.setattr(place, "sleep", wait)
    store = DiskStore(folder)
    store.replace(lease.PATH, lease.encode(lease.mine(store, "demo-1a2b", 2)))
    checked = handle.check()
    assert not checked.problems and checked.is_running and waits == [0.2]


def test_it_is_not_told_how_far_it_has_come(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_TOLD", 2)
    handle = satchel.open(make())
    handle.run()
    told: list[tuple[int, int]] = []
    handle.check(progress=lambda *each: told.append(each))
    count = len(list(handle.history.log()))
    assert told == [(done, count) for done in range(2, count + 1, 2)]


def test_a_storage_is_not_tried(tmp_path: Path, make: Make) -> None:
    tried = satchel.open(tmp_path).try_storage()
    assert tried.tried == "lock" and tried.abilities.lock and not (tmp_path / "workspace.yaml").exists()


DELEGATING = """
from satchel import Run, agent


@agent
async def helper(run: Run) -> None:
    await run.scope("write", write, run)


async def write(run: Run) -> None:
    await run.output("report.txt", "what the helper found")


@agent
async def main(run: Run) -> None:
    await run.scope("work", work, run)


async def work(run: Run) -> None:
    await run.spawn(helper, "helper")
    await run.ask("Go on?", choices=["yes", "no"], wait_for=0)
"""


def test_a_changed_output_of_an_agent_that_has_ended_is_passed_over_while_another_one_works(make: Make) -> None:
    folder = make(DELEGATING)
    handle = satchel.open(folder)
    assert handle.run().status == "waiting"
    assert not handle.check().problems
    (folder / "agents/helper/outputs/report.txt").write_text("what somebody else found")
    (problem,) = handle.check().problems
    assert problem.file == "agents/helper/outputs/report.txt"
