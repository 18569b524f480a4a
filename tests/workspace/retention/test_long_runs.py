"""A long run stays small, on a disk and in a bucket, and keeps what is kept for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from servers import Server

import satchel
from satchel import Item, Run, agent, effect, step
from satchel.workspace import journal
from satchel.workspace.inspect.load import look
from satchel.workspace.journal import Fenced, Pruned, StepStarted, segment_log
from satchel.workspace.lifecycle import retention, workspace
from satchel.workspace.state import checkpoint
from satchel.workspace.store import DiskStore, Store, open_store

DEFINITION = "format: 1\nrun_id: long-1\nagent: agent.py:main\nsettings: {{items: {items}, steps: {steps}}}\n{keep}"


@step
async def think(number: int) -> str:
    return f"thought {number}"


@effect
async def send(text: str) -> str:
    return f"sent {text}"


async def work(run: Run[dict[str, Any]], item: Item) -> None:
    for number in range(run.settings["steps"]):
        await think(number)
    if item.text.endswith("0"):
        await send(item.text)
    run.state[item.text] = "done"


@agent(durability="pipelined")
async def main(run: Run[dict[str, Any]]) -> None:
    if not run.todo.items:
        await run.plan("Long", [f"item {at}" for at in range(run.settings["items"])])
    await run.todo.each(work)


def of_the_past(store: Store) -> tuple[int, int, int]:
    """Files and bytes of journal and checkpoints with their folders, and bytes of the newest checkpoint."""
    folders = (journal.FOLDER, journal.CHECKPOINTS, *store.folders(journal.CHECKPOINTS))
    found = [entry for folder in folders for entry in store.list(folder)]
    newest = checkpoint.paths(store)[-1]
    return len(found), sum(entry.size for entry in found), next(each.size for each in found if each.path == newest)


@pytest.mark.slow
def test_a_run_of_50000_steps_is_many_times_its_state(tmp_path: Path) -> None:
    (tmp_path / "workspace.yaml").write_text(DEFINITION.format(items=1000, steps=50, keep=""))
    assert satchel.run(tmp_path, main).status == "completed"
    store = DiskStore(tmp_path)
    files, size, state = of_the_past(store)
    rows = [row.line for row in satchel.open(tmp_path).history.log()]
    gone = sum(line.record.bytes for line in rows if isinstance(line.record, Pruned))
    print(f"{rows[-1].seq:,} records; {size:,} bytes in {files} files, state {state:,} bytes; {gone:,} bytes pruned")
    assert rows[-1].seq > 52_000 and gone > size
    assert size < (4 << 20) + 16 * state and files < 30
    assert rows[-1].seq - journal.first_kept(store) >= 10_000, "as much history as the default says"
    assert sum(isinstance(line.record, StepStarted) for line in rows) == 100, "of every effect"
    assert satchel.open(tmp_path).check().ok
    done = satchel.open(tmp_path).prune()
    print(f"satchel prune: {done.bytes:,} bytes more")
    files, size, _ = of_the_past(store)
    assert size < (4 << 20) + 16 * state
    assert satchel.open(tmp_path).status().history == (files, size, done.kept_from)


@pytest.mark.slow
def test_a_run_in_a_bucket_keeps_all_its_objects(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(segment_log, "REPEATED_BYTES", 900)
    monkeypatch.setattr(segment_log, "ROLLED_BYTES", 4000)
    monkeypatch.setattr(workspace, "FETCHED_BYTES", 3000)
    monkeypatch.setattr(retention, "ENOUGH_FETCHED", 3000)
    monkeypatch.setattr(checkpoint, "_APART", 20)
    left = {}
    for keep in ("{history: all, checkpoints: all}", "{history: 60, checkpoints: 1}"):
        url = seaweedfs.place()
        bucket, _, key = url.removeprefix("s3://").partition("/")
        definition = DEFINITION.format(items=40, steps=6, keep=f"keep: {keep}\n")
        seaweedfs.client.put_object(Bucket=bucket, Key=f"{key}/workspace.yaml", Body=definition.encode())
        assert satchel.run(url, main).status == "completed"
        store = open_store(url)
        left[keep] = of_the_past(store)
        print(f"{keep}: {left[keep]}")
    (_, whole, _), (_, size, _) = left.values()
    first = journal.first_kept(store)
    assert size < whole / 2 and first > 100
    lines = [*journal.kept_lines(store), *journal.read(store, after=first - 1).lines]
    assert sum(isinstance(line.record, StepStarted) for line in lines) == 4
    before = look(store).moment
    done = satchel.open(url).prune(by="ada")
    store = open_store(url)
    assert done.kept_from == journal.first_kept(store) >= first and satchel.open(url).check().ok
    assert look(store).moment.root.data == before.root.data
    fence = store.read(journal.segment_path(1)).data
    assert fence.count(b"\n") == 1 and isinstance(journal.parse(fence[:-1]).record, Fenced), "its name stays"
    assert satchel.run(url, main).status == "completed"
