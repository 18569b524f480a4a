"""Retention: what may go goes, and nothing else. Runs here have small segments and checkpoints, so little is much."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import satchel
from satchel import Item, Run, agent, effect, step
from satchel.runtime.cli.group import group
from satchel.workspace import journal
from satchel.workspace.base.errors import Damaged, LeaseHeld, StorageFailed
from satchel.workspace.formats.definition import Keep, Rule
from satchel.workspace.history import moment_at
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import Line, Message, PartialPromoted, Pruned, StepCompleted, blobs, segment_log
from satchel.workspace.lifecycle import retention, workspace
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.lifecycle.retention import carry_out, old_files
from satchel.workspace.state import Moment, checkpoint
from satchel.workspace.store import DiskStore
from satchel.workspace.store.syscalls import Syscalls

LARGE = 70_000


@step
async def think(number: int) -> str:
    return f"thought {number}"


@step
async def read(name: str) -> str:
    return name * LARGE


@effect
async def send(text: str) -> str:
    return f"sent {text}"


async def work(run: Run[dict[str, Any]], item: Item) -> None:
    for number in range(4):
        await think(number)
    if "large" in item.text:
        await read(item.text[0])
    if "effect" in item.text:
        await send(item.text if "large" not in item.text else item.text * LARGE)
    run.messages.add("assistant", f"did {item.text}")
    run.state[item.text] = len(run.state)


@agent
async def main(run: Run[dict[str, Any]]) -> None:
    if not run.todo.items:
        await run.plan("Plan", run.settings["plan"])
    await run.todo.each(work)


@pytest.fixture(autouse=True)
def _little_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_log, "SEGMENT_BYTES", 2000)
    monkeypatch.setattr(segment_log, "MANY", 10**6)  # else the small segments become one at the stop
    monkeypatch.setattr(workspace, "REREAD_BYTES", 2000)
    monkeypatch.setattr(retention, "ENOUGH", 2000)
    monkeypatch.setattr(checkpoint, "_APART", 10)


def ran(folder: Path, plan: list[str], keep: str = "{history: all, checkpoints: all}") -> DiskStore:
    """A completed run of this plan."""
    folder.mkdir(exist_ok=True)
    (folder / "workspace.yaml").write_text(
        f"format: 1\nrun_id: r-1\nagent: agent.py:main\nsettings: {json.dumps({'plan': plan})}\nkeep: {keep}\n"
    )
    assert satchel.run(folder, main).status == "completed"
    return DiskStore(folder)


def ruled(store: DiskStore, keep: str) -> None:
    path = Path(store.url, "workspace.yaml")
    path.write_text(path.read_text().rpartition("keep: ")[0] + f"keep: {keep}\n")


def plan_of(number: int) -> list[str]:
    return [f"item {at}" + (" effect" if at % 5 == 0 else "") for at in range(number)]


def facts(line: Line) -> tuple[Any, ...]:
    return line.seq, line.commit, line.at, line.epoch, line.opening, line.record


def test_history_goes_that_is_kept_or_stays_that_is_not(tmp_path: Path) -> None:
    store = ran(tmp_path / "run", plan_of(40))
    before = {line.seq: line for line in journal.read(store, after=0).lines}
    moments = {seq: moment_at(store, seq) for seq in [*before][::3]}
    ruled(store, "{history: 60, checkpoints: 2}")
    done = satchel.open(tmp_path / "run").prune(by="ada")
    first = journal.first_kept(store)
    assert done.kept_from == first > 50 and done.files["journal"] and done.files["checkpoints"]
    after = journal.read(store, after=first - 1).lines
    assert [facts(line) for line in after if line.seq in before] == [
        facts(before[seq]) for seq in before if seq >= first
    ]
    assert max(before) - first >= 60, "as much as the rule says"
    kept = journal.kept_lines(store)
    effects = [line for line in before.values() if getattr(line.record, "effect", False) and line.seq < first]
    assert effects and [facts(line) for line in kept if isinstance(line.record, StepCompleted)] == [
        *map(facts, effects)
    ]
    (record,) = (line.record for line in after if isinstance(line.record, Pruned))
    assert (record.by, record.up_to, record.files) == ("ada", first - 1, done.files)
    begins = checkpoint.position_of(record.base)
    for seq, then in moments.items():
        if seq >= begins:
            assert checkpoint.encode(moment_at(store, seq), {}) == checkpoint.encode(then, {})
        else:
            with pytest.raises(journal.Gone, match="is gone: the journal is kept from record"):
                moment_at(store, seq)
    assert satchel.open(tmp_path / "run").check().ok
    told = CliRunner().invoke(group, ["status", str(tmp_path / "run")]).output
    assert re.search(rf"^history +\d+ kB in \d+ files, kept from record {first} on$", told, re.MULTILINE), told


def test_a_run_grows_with_its_steps(tmp_path: Path) -> None:
    def size(folder: Path) -> int:
        return sum(path.stat().st_size for name in ("journal", "checkpoints") for path in (folder / name).iterdir())

    keep = "{history: 60, checkpoints: 2}"
    ran(tmp_path / "all", [f"item {at}" for at in range(80)])
    store = ran(tmp_path / "run", [f"item {at}" for at in range(80)], keep)
    assert size(tmp_path / "run") < size(tmp_path / "all") / 3
    lines = journal.read(store, after=journal.first_kept(store) - 1).lines
    assert lines[-1].seq - lines[0].seq < 240
    assert any(isinstance(line.record, Pruned) and line.record.by == "keep:" for line in lines)
    assert satchel.open(tmp_path / "run").check().ok


def test_a_run_can_not_continue_after_a_prune(tmp_path: Path) -> None:
    """Its effects are remembered, a lost conversation is restored, and an item that is done again repeats no effect."""
    folder = tmp_path / "run"
    store = ran(folder, plan_of(40), "{history: 20, checkpoints: 1}")
    assert journal.first_kept(store) > 100
    said = (folder / "messages.jsonl").read_bytes()
    (folder / "messages.jsonl").unlink()
    todo = (folder / "todo.md").read_text()
    (folder / "todo.md").write_text(todo.replace("- [x] item 5 effect", "- [ ] item 5 effect"))
    sent: list[str] = []

    async def spied(text: str) -> str:
        sent.append(text)
        return "again"

    assert satchel.run(folder, main).status == "completed"
    assert (folder / "messages.jsonl").read_bytes().startswith(said) and not sent
    done = [row for row in satchel.open(folder).history.log(type="step.completed") if row.record.get("effect")]
    assert sum("item 5 effect" in str(row.record) for row in done) == 1


def test_a_message_that_did_not_count_comes_back(tmp_path: Path) -> None:
    @agent
    async def wavering(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan("Plan", [f"item {at}" for at in range(60)])

        async def body(run: Run[dict[str, Any]], item: Item) -> None:
            run.messages.add("assistant", item.text)
            await think(1)
            if item.text == "item 7" and not (tmp_path / "failed").exists():
                (tmp_path / "failed").touch()
                raise ValueError("once")

        await run.todo.each(body)

    (tmp_path / "run").mkdir()
    (tmp_path / "run/workspace.yaml").write_text(
        "format: 1\nrun_id: r-1\nagent: agent.py:main\nkeep: {history: 20, checkpoints: 1}\n"
    )
    assert satchel.run(tmp_path / "run", wavering).status == "completed"
    assert (tmp_path / "failed").exists()
    store, path = DiskStore(tmp_path / "run"), tmp_path / "run/messages.jsonl"
    assert journal.first_kept(store) > 50 and any(
        isinstance(line.record, Message) for line in journal.kept_lines(store)
    )
    before = path.read_bytes()
    assert before.count(b"\n") == 60
    path.unlink()
    satchel.open(tmp_path / "run").recover()
    assert path.read_bytes() == before


def test_blobs_go_that_something_refers_to_or_stay_without(tmp_path: Path) -> None:
    plan = ["a large", "b large effect", *plan_of(40), "c large"]
    folder = tmp_path / "run"
    ruled(ran(folder, plan), "{history: 20, checkpoints: 1}")
    there = {entry.path.rpartition("/")[2] for entry in DiskStore(folder).list(blobs.BLOBS)}
    orphan = folder / blobs.BLOBS / f"{'0' * 64}-1"
    orphan.write_text("a crash came between it and its record")
    satchel.open(folder).prune()
    left = {entry.path.rpartition("/")[2] for entry in DiskStore(folder).list(blobs.BLOBS)}
    rows = [row.record for row in satchel.open(folder).history.log(type="step.completed") if row.record.get("blob")]
    effects = {row["blob"] for row in rows if row.get("effect")}
    assert len(there) == 4 and len(effects) == 1 and effects < left == {row["blob"] for row in rows} < there
    assert satchel.open(folder).check().ok


def test_an_active_run_is_pruned_by_another_process(tmp_path: Path) -> None:
    store = ran(tmp_path / "run", plan_of(40))
    ruled(store, "{history: 20, checkpoints: 1}")
    handle = satchel.open(tmp_path / "run")
    with opened(store, "recover", Report()) as workspace:
        with pytest.raises(LeaseHeld, match="prunes by itself"):
            handle.prune()
        dry = handle.prune(dry_run=True)
        assert dry.dry_run and dry.files["journal"] and journal.first_kept(store) == 1
        workspace.close()
    assert asyncio.run(handle.prune_async(dry_run=True)).kept_from > 1
    assert asyncio.run(handle.prune_async()).kept_from == journal.first_kept(store) > 1
    assert handle.prune().files == {}


def test_the_journal_begins_with_a_checkpoint_that_is_damaged(tmp_path: Path) -> None:
    store = ran(tmp_path / "run", plan_of(40))
    ruled(store, "{history: 20, checkpoints: 1}")
    *older, last, _newest = checkpoint.paths(store)
    store.replace(last, b"{}")
    satchel.open(tmp_path / "run").prune()
    assert 1 < journal.first_kept(store) <= checkpoint.position_of(older[-1]) + 1


def test_a_pruned_run_without_any_good_checkpoint_is_said_to_be_gone(tmp_path: Path) -> None:
    store = ran(tmp_path / "run", plan_of(40), "{history: 20, checkpoints: 1}")
    for path in checkpoint.paths(store):
        store.replace(path, b"{}")
    with pytest.raises(Damaged, match=r"no checkpoint can be used: .* can't be used.* from a backup"):
        look(store)


def test_a_damaged_segment_goes(tmp_path: Path) -> None:
    store = ran(tmp_path / "run", plan_of(40))
    path = Path(store.url, journal.segment_path(journal.segments(store)[1]))
    path.write_bytes(path.read_bytes().replace(b"thought 2", b"thought 3", 1))
    ruled(store, "{history: 20, checkpoints: 1}")
    satchel.open(tmp_path / "run").prune()
    assert path.exists() and journal.first_kept(store) == journal.segments(store)[0] == int(path.stem)


def test_a_rule_of_time_or_all_is_not_followed(tmp_path: Path) -> None:
    store = ran(tmp_path / "run", plan_of(30))
    handle = satchel.open(tmp_path / "run")
    for keep in (
        "{history: 1h, checkpoints: 1}",
        "{history: all, checkpoints: 1}",
        "{history: [10, 1h], checkpoints: 1}",
    ):
        ruled(store, keep)
        assert "journal" not in handle.prune().files and journal.first_kept(store) == 1
    for path in checkpoint.paths(store):
        os.utime(Path(store.url, path), (1e9, 1e9))
    ruled(store, "{history: [10000, 1h], checkpoints: 1}")
    assert "journal" not in handle.prune(dry_run=True).files
    ruled(store, "{history: 1h, checkpoints: 1}")
    assert handle.prune().files["journal"]


def test_a_return_to_what_a_frozen_process_is_about_to_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record is durable, and nothing is removed yet. Blobs of that moment would go after the return."""
    store, handle = ran(tmp_path / "run", ["a large", *plan_of(40)]), satchel.open(tmp_path / "run")
    ruled(store, "{history: 20, checkpoints: 1}")

    def frozen(*_: Any) -> None:
        raise StorageFailed("frozen")

    with monkeypatch.context() as patch, pytest.raises(StorageFailed, match="frozen"):
        patch.setattr("satchel.workspace.lifecycle.retention.carry_out", frozen)
        handle.prune()
    assert journal.first_kept(store) == 1 and moment_at(store, 40).seq == 40
    before = look(store).moment.seq
    with pytest.raises(journal.Gone, match="record 40 is gone"):
        handle.history.rewind(to=40)
    assert look(store).moment.seq == before
    with pytest.raises(journal.Gone, match="record 40 is gone"):
        handle.history.fork(tmp_path / "fork", at=40)
    assert not (tmp_path / "fork/workspace.yaml").exists()
    assert handle.prune().kept_from > 40 and handle.check().ok


def test_an_interrupted_removal_is_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fails after `kept-SEQ` was created. The run completes, and the next prune removes the rest."""
    remove = DiskStore.remove
    fails = True

    def failing(self: DiskStore, path: str, **more: Any) -> None:
        if fails and path.startswith("journal/"):
            raise StorageFailed("can't be removed", path=path)
        remove(self, path, **more)

    monkeypatch.setattr(DiskStore, "remove", failing)
    store = ran(tmp_path / "run", plan_of(40), "{history: 20, checkpoints: 1}")
    first = journal.first_kept(store)
    assert first > 1 == min(journal.sizes(store, pruned=True)) and journal.segments(store)[0] == first
    assert len(journal.kept_files(store)) > 1
    fails = False
    satchel.open(tmp_path / "run").prune()
    assert min(journal.sizes(store, pruned=True)) == journal.segments(store)[0] >= first
    ruled(store, "{history: 1, checkpoints: 1}")
    satchel.open(tmp_path / "run").prune()
    assert len(journal.kept_files(store)) == 1 and satchel.open(tmp_path / "run").check().ok


def test_a_blob_goes_before_the_checkpoints_that_refer_to_it_are_gone_for_good(tmp_path: Path) -> None:
    """A power failure could bring back such a checkpoint, but not the blob."""
    store = ran(tmp_path / "run", ["a large", *plan_of(40)])
    calls: list[str] = []

    class Told(Syscalls):
        def unlink(self, path: str) -> None:
            calls.append(f"unlink {os.path.relpath(os.path.dirname(path), store.url)}")
            super().unlink(path)

        def sync_folder(self, path: str) -> None:
            calls.append(f"sync {os.path.relpath(path, store.url)}")
            super().sync_folder(path)

    seen = look(store)
    found = retention.plan(
        store, retention.Facts.of(seen.moment), Keep(history=Rule(20), checkpoints=Rule(1)), None, 10**12, all=True
    )
    assert found is not None and found.last
    carry_out(DiskStore(store.url, Told()), found)
    last = max(at for at, call in enumerate(calls) if call == "unlink checkpoints")
    assert "sync checkpoints" in calls[last : calls.index(f"unlink {blobs.BLOBS}")]


# Files of finished work


def files(store: DiskStore, folder: str, number: int) -> list[str]:
    """So many files, each an hour younger than the one before."""
    made = [f"{folder}/{at:02d}.md" for at in range(number)]
    for at, path in enumerate(made):
        store.replace(path, b"x")
        os.utime(Path(store.url, path), (1e9 + 3600 * at,) * 2)
    return made


def test_files_of_finished_work_are_kept_against_the_rules(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    done, moved = files(store, "inbox/done", 20), files(store, "inbox/moved", 3)
    saved = [*files(store, "recovered/1-a", 5), *files(store, "agents/x/recovered/2-b", 5)]
    keep = Keep(inbox=Rule(12), recovered=Rule(3))
    folders = ["recovered", "agents/x/recovered"]

    def gone(keep: Keep, needed: tuple[str, ...] = (), *, all: bool = True) -> set[str]:
        return {entry.path for entry in old_files(store, keep, folders, needed, all=all)}

    assert gone(keep) == {*done[:8], *saved[:2], *saved[5:7]}
    assert gone(keep, (saved[0],)) == {*done[:8], saved[1], *saved[5:7]}
    assert gone(Keep(inbox=Rule(19), recovered=Rule(5))) == {done[0]}
    assert gone(Keep(inbox=Rule(19), recovered=Rule(5)), all=False) == set(), "not for a single one"
    assert gone(Keep(inbox=Rule(0, 60.0), recovered=Rule(9))) == {*done, *moved}
    assert gone(Keep(inbox=Rule(2, float("inf")), recovered=Rule(0, float("inf")))) == set()


def test_rescued_output_goes_that_the_next_attempt_will_see() -> None:
    promoted = PartialPromoted(
        scope="",
        no=1,
        step="write",
        args="0" * 16,
        n=0,
        attempt=1,
        file="recovered/_agent/01-write-1.md",
        characters=9,
        damaged=False,
        cut_off_at="2026-11-21T09:30:00.000Z",
        cut_off_by="a crash",
    )
    moment = Moment(run_id="r-1")
    moment.root.scopes[""].promoted[promoted.key] = [promoted]
    assert retention.Facts.of(moment).needed == {promoted.file}
