"""Requests to the place of a backup fail at random, before or after they have taken effect; the machine is lost at a
random moment, and its owner goes on: nothing that was acknowledged is missing, and the owner gets no further."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from properties import ROUNDS

import satchel
from satchel.errors import LeaseHeld, StorageFailed
from satchel.workspace import journal
from satchel.workspace.inspect import look
from satchel.workspace.lifecycle import Replica
from satchel.workspace.store import DiskStore
from satchel.workspace.transfer import restore

AGENT = """
from satchel import agent, step

@step
def shout(text: str) -> str:
    return text.upper() * 500

async def work(run, item):
    run.state[item.text] = len(await shout(item.text))

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Letters", [f"item {number}" for number in range(12)])
    await run.todo.each(work)
"""
_FAILING = ("create", "replace", "remove", "remove_many")


class Failing(DiskStore):
    """A place that can't be reached from time to time."""

    def __init__(self, root: Path, chance: random.Random):
        super().__init__(root)
        self.chance, self.share = chance, 0.0


def _failing(name: str) -> Any:
    real = getattr(DiskStore, name)

    def act(store: Failing, *args: Any, **named: Any) -> Any:
        if store.chance.random() < store.share:
            raise StorageFailed("lost on its way")
        result = real(store, *args, **named)
        if store.chance.random() < store.share:
            raise StorageFailed("the answer is lost")
        return result

    return act


for _name in _FAILING:
    setattr(Failing, _name, _failing(_name))


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A run, and the lines of its journal."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    folder.mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: letters-1\nagent: agent.py:main\n")
    (folder / "agent.py").write_text(AGENT)
    assert satchel.run(folder).status == "completed"
    (segment,) = (folder / "journal").iterdir()
    return folder, segment.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("seed", range(12 * ROUNDS))
def test_a_record_that_was_acknowledged_is_lost(lines: tuple[Path, list[bytes]], tmp_path: Path, seed: int) -> None:
    whole, records = lines
    chance, run = random.Random(seed), tmp_path / "run"
    for name in ("run/journal", "copy", "new"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("workspace.yaml", "agent.py"):
        shutil.copy(whole / name, run)
    segment = run / "journal/000000000001.jsonl"
    at, acknowledged = 3, 0
    segment.write_bytes(b"".join(records[:at]))
    to = Failing(tmp_path / "copy", chance)
    owner = Replica(DiskStore(run), to, "letters-1")
    owner.begin()
    to.share = 0.15
    is_new = False
    for _ in range(chance.randrange(5, 40)):
        at = min(len(records) - 5, at + chance.randrange(4))
        segment.write_bytes(b"".join(records[:at]))
        try:
            if is_new:
                owner = Replica(DiskStore(run), to, "letters-1")
                owner.begin()
                is_new = False
            if chance.random() < 0.3:
                owner.complete(is_last=chance.random() < 0.3)
            else:
                owner.follow()
            acknowledged = owner.seq
        except StorageFailed:
            is_new = chance.random() < 0.7
    to.share = 0.0
    here = DiskStore(tmp_path / "copy")
    done = restore(here, DiskStore(tmp_path / "new"), by="me")
    assert acknowledged <= done.seq <= at
    restored = look(DiskStore(tmp_path / "new")).moment
    assert restored.seq == done.seq + 1, "the fence"
    known = {line.seq: line.crc for line in journal.read(DiskStore(whole), after=0).lines}
    copied = {line.seq: line.crc for line in journal.read(here, after=0).lines[:-1]}
    assert copied == {seq: crc for seq, crc in known.items() if seq <= done.seq}
    segment.write_bytes(b"".join(records))  # the owner was not lost, and goes on
    with pytest.raises(LeaseHeld, match="restored from its backup"):
        if is_new:
            owner = Replica(DiskStore(run), to, "letters-1")
            owner.begin()
        owner.follow()
    assert look(here).moment.crc == restored.crc


def test_a_file_that_can_not_be_read_holds_up_the_journal(
    lines: tuple[Path, list[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, records = lines
    run = tmp_path / "run"
    shutil.copytree(whole, run, ignore=shutil.ignore_patterns(".satchel", "checkpoints"))
    (run / "journal/000000000001.jsonl").write_bytes(b"".join(records[:3]))
    (tmp_path / "copy").mkdir()
    owner = Replica(DiskStore(run), DiskStore(tmp_path / "copy"), "letters-1")
    owner.begin()
    read = DiskStore.read

    def refusing(store: DiskStore, path: str, **named: Any) -> Any:
        if path == "outputs/table.csv":
            raise StorageFailed("can't be read", path=path)
        return read(store, path, **named)

    (run / "outputs").mkdir(exist_ok=True)
    (run / "outputs/table.csv").write_text("a,b\n")
    (run / "journal/000000000001.jsonl").write_bytes(b"".join(records[:6]))
    monkeypatch.setattr(DiskStore, "read", refusing)
    with pytest.raises(StorageFailed):
        owner.complete()
    assert owner.seq == look(DiskStore(tmp_path / "copy")).moment.seq > 3
