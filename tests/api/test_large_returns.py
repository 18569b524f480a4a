"""A return of a run with a large state, or with many agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli.conftest import Make

import satchel
from satchel import Item, Run, agent
from satchel.runtime.api import Handle
from satchel.workspace import journal
from satchel.workspace.inspect import look
from satchel.workspace.journal import Rewound, blobs, segment_log, writer
from satchel.workspace.state import checkpoint
from satchel.workspace.store import DiskStore

PART = 40 << 10


def returns(handle: Handle) -> list[Rewound]:
    lines = journal.read(DiskStore(handle.url), after=0).lines
    return [line.record for line in lines if isinstance(line.record, Rewound)]


def data(handle: Handle) -> Any:
    return json.loads((Path(handle.url) / "state.json").read_text())["data"]


async def fill(run: Run[Any], item: Item) -> None:
    run.state[item.text] = item.text * PART


@agent
async def filling(run: Run[Any]) -> None:
    if not run.todo.items:
        await run.plan("Parts", ["a", "b", "c", "d"])
    await run.todo.each(fill)


def test_a_state_that_is_larger_than_a_record_does_not_go_back(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RECORD_BYTES", 2 * PART)
    handle = satchel.open(make())
    assert handle.run(filling).status == "completed"
    end = look(handle.store).moment.seq
    handle.history.rewind(to="^4")
    [found] = returns(handle)
    assert found.blob and data(handle).keys() == {"a", "b", "c"} and handle.check().ok
    assert all(len(row.data) < 2 * PART for row in handle.history.log(type="rewound")), (
        "the log repeats the whole state"
    )
    for path in checkpoint.paths(handle.store):
        handle.store.remove(path)  # only the journal and the blob still say what the state is
    assert look(handle.store).moment.root.data.keys() == {"a", "b", "c"}
    handle.history.rewind(to=end)
    assert handle.run(filling).status == "completed" and data(handle).keys() == {"a", "b", "c", "d"}
    assert handle.check().ok


def test_a_missing_state_of_a_return_is_a_riddle(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RECORD_BYTES", 2 * PART)
    handle = satchel.open(make())
    handle.run(filling)
    handle.history.rewind(to="^4")
    [found] = returns(handle)
    for path in checkpoint.paths(handle.store):
        handle.store.remove(path)
    handle.store.remove(f"{blobs.BLOBS}/{found.blob}")
    problems = " ".join(map(str, handle.check().problems))
    assert found.blob in problems and "backup" in problems
    log = handle.history.log()
    assert next(iter(log)).line.seq == 1


def test_agents_that_do_not_change_are_recorded(make: Make) -> None:
    @agent
    async def child(run: Run[Any]) -> str:
        if not run.todo.items:
            await run.plan(None, ["x"])
        await run.todo.each(fill)
        return "done"

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan("Parts", ["a", "b"])
        await run.spawn(child, "child")
        await run.todo.each(fill)

    handle = satchel.open(make())
    assert handle.run(main).status == "completed"
    handle.history.rewind(to="^2")
    [found] = returns(handle)
    assert msgspec.json.decode(found.agents).keys() == {""}
    assert handle.resume(main).status == "completed" and data(handle).keys() == {"a", "b"} and handle.check().ok


def test_a_return_reads_the_journal_again_for_each_question(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_log, "MANY", 10**6)  # else the segments of the openings become one at the stop
    handle = satchel.open(make())
    assert handle.run(filling).status == "completed"
    handle.recover()
    first, *others = map(journal.segment_path, journal.segments(handle.store))
    assert others
    found: list[str] = []
    read = DiskStore.read

    def reading(self: DiskStore, path: str, **more: Any) -> Any:
        found.append(path)
        return read(self, path, **more)

    monkeypatch.setattr(DiskStore, "read", reading)
    handle.history.rewind(to="^2", reuse=True, dry_run=True)
    assert found.count(first) == 1
    handle.history.rewind(to="^2", reuse=True)
    assert found.count(first) == 2
    handle.history.fork(f"{handle.url}-2", at="^1", reuse=True)
    assert found.count(first) == 4, "for the records, and at the end to see whether they are still kept"
