"""Retention of what lies next to the run: refused edits, and the texts of prompts."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from servers import Server

import satchel
from satchel import Item, Run, agent, step
from satchel.workspace import journal
from satchel.workspace.base.errors import StorageFailed
from satchel.workspace.formats.definition import Keep, Rule
from satchel.workspace.inspect import look
from satchel.workspace.journal import StepCompleted
from satchel.workspace.lifecycle.retention import carry_out, old_refused
from satchel.workspace.state import prompts
from satchel.workspace.store import DiskStore, open_store
from satchel.workspace.transfer import zip_file

from .test_pruning import _little_is_much, plan_of, ran, ruled

__all__ = ["_little_is_much"]


def test_refused_edits_go_without_their_reasons_or_before_their_time(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)

    def refused(folder: str, name: str, number: int, at: float) -> list[str]:
        kept = f"{folder}{name}.rejected" + (f"-{number}" if number > 1 else "")
        made = [f"{kept}.md", f"{kept}.txt"]
        for path in made:
            store.replace(path, b"x")
            os.utime(Path(store.url, path), (at, at))
        return made

    old = [refused("", "todo", number, 1e9 + number) for number in range(1, 6)]
    for folder in ("agents/x/", "steps/1-a/", "inbox/"):
        refused(folder, "note", 1, 4e9)
    store.replace("agent.rejected.md", b"of the agent: it has no reasons")

    def gone(rule: Rule, *, all: bool = True) -> set[str]:
        return {entry.path for entry in old_refused(store, rule, ["", "agents/x/"], all=all)}

    assert gone(Rule(6)) == {*old[0], *old[1]}
    order = [entry.path for entry in old_refused(store, Rule(6), ["", "agents/x/"], all=True)]
    assert order[::2] == [path for path in order if path.endswith(".txt")], "status names what has reasons"
    assert gone(Rule(20)) == gone(Rule(0, 1e12)) == gone(Rule(0, float("inf"))) == set()
    assert gone(Rule(0, 60.0)) == {path for pair in old for path in pair}, "those of the others are of tomorrow"
    assert gone(Rule(7)) == {*old[0]} and gone(Rule(7), all=False) == {*old[0]} and not gone(Rule(7, 1e12), all=False)
    keep = Keep()
    assert (keep.rejected.number, keep.rejected.age) == (100, 90 * 86400)


def test_a_prompt_goes_that_a_kept_step_has_used_or_stays_that_none_has(tmp_path: Path) -> None:
    @step
    async def asked(number: int, brief: str) -> str:
        return f"{brief} {number}"

    @agent
    async def asking(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan("Plan", [f"item {number}" for number in range(30)])

        async def ask(run: Run[dict[str, Any]], item: Item) -> None:
            number = int(item.text.split()[1])
            brief = tmp_path / "run" / "prompts" / "brief.md"
            if number % 5 == 0:
                brief.write_text(f"version {number}\n")
            run.state[item.text] = await asked(number, run.prompt("brief"))

        await run.todo.each(ask)

    (tmp_path / "run" / "prompts").mkdir(parents=True)
    (tmp_path / "run" / "prompts" / "brief.md").write_text("version 0\n")
    (tmp_path / "run" / "workspace.yaml").write_text(
        "format: 1\nrun_id: r-1\nagent: agent.py:main\nkeep: {history: all, checkpoints: all}\n"
    )
    store = DiskStore(tmp_path / "run")
    assert satchel.run(store.url, asking).status == "completed"
    versions = [prompts.version_of(f"version {number}\n".encode()) for number in range(0, 30, 5)]
    handle = satchel.open(store.url)
    assert not handle.prune(dry_run=True).paths
    ruled(store, "{history: 30, checkpoints: 1}")
    planned = handle.prune(dry_run=True)
    done = handle.prune()
    assert sorted(planned.paths) == sorted(done.paths) and handle.check().ok
    gone = [version for version in versions if f"{prompts.KEPT}/{version}.md" in done.paths]
    lines = journal.read(store, after=journal.first_kept(store) - 1).lines
    used = {each for line in lines if isinstance(line.record, StepCompleted) for each in line.record.prompts.values()}
    assert len(gone) > 1 and used and {*gone} == {*versions[1:]} - used, "the first is what the run began with"
    for version in versions:
        assert (store.version(f"{prompts.KEPT}/{version}.md") is None) == (version in gone)


@pytest.mark.slow
def test_a_frozen_prune_removes_a_prompt_that_is_used_again(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is kept under the same name, and only a lock tells that no other process keeps it meanwhile."""
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    url = seaweedfs.place()
    bucket, _, key = url.removeprefix("s3://").partition("/")

    def write(path: str, text: str) -> None:
        seaweedfs.client.put_object(Bucket=bucket, Key=f"{key}/{path}", Body=text.encode())

    @step
    async def asked(text: str) -> str:
        return text

    @agent
    async def asking(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan("Plan", ["first"])

        async def ask(run: Run[dict[str, Any]], item: Item) -> None:
            write("prompts/brief.md", item.text.partition(" ")[0])
            await asked(run.prompt("brief"))

        await run.todo.each(ask)

    head = "format: 1\nrun_id: r-1\nagent: agent.py:main\nkeep: "
    write("workspace.yaml", head + "{history: all, checkpoints: all}\n")
    write("prompts/brief.md", "zeroth")

    def go_on(text: str) -> None:
        handle = satchel.open(url)
        draft = handle.files.draft()
        handle.files.edit("todo.md", draft.text.replace("\n\n<!--", f"\n- [ ] {text}\n\n<!--"), version=draft.version)
        assert handle.resume(asking).status == "completed"

    assert satchel.run(url, asking).status == "completed"
    go_on("second")
    go_on("third")
    write("workspace.yaml", head + "{history: 1, checkpoints: 1}\n")
    frozen: list[tuple[Any, ...]] = []

    def freeze(*work: Any) -> None:
        frozen.append(work)
        raise StorageFailed("frozen")

    with monkeypatch.context() as patch, pytest.raises(StorageFailed, match="frozen"):
        patch.setattr("satchel.workspace.lifecycle.retention.carry_out", freeze)
        satchel.open(url).prune()
    go_on("zeroth again")
    carry_out(*frozen[0])
    kept = f"{prompts.KEPT}/{prompts.version_of(b'zeroth')}.md"
    assert open_store(url).read(kept).data == b"zeroth"


def test_an_export_that_a_prune_overtakes_has_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ran(tmp_path / "run", plan_of(40))
    ruled(store, "{history: 1, checkpoints: 1}")
    handle = satchel.open(store.url)
    read, first = zip_file._Packing._journal, journal.first_kept(store)

    def late(self: Any, *points: Any) -> Any:
        """Its checkpoints are read; they go now, and others come."""
        for _ in range(4):
            handle.recover()
        handle.prune()
        return read(self, *points)

    monkeypatch.setattr(zip_file._Packing, "_journal", late)
    handle.files.export(tmp_path / "run.zip")
    assert journal.first_kept(store) > first
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        archive.extractall(tmp_path / "out")
    checked = satchel.open(tmp_path / "out" / "r-1").check()
    assert checked.ok, checked.problems


def test_what_only_the_large_state_of_a_return_names_goes(tmp_path: Path) -> None:
    """Its record is kept, and the records of the steps that it brings back are not."""
    calls: list[str] = []

    @step
    async def asked(text: str, brief: str) -> str:
        calls.append(text)
        return f"{brief} {text} " * 20_000

    async def ask(run: Run[dict[str, Any]], item: Item) -> None:
        brief.write_text("new" if item.text == "c" else "old")
        run.state[item.text] = await asked(item.text, run.prompt("brief"))

    @agent
    async def asking(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan("Plan", ["a", "b", "c"])
        await run.todo.each(ask)

    store = DiskStore(tmp_path / "run")
    (tmp_path / "run" / "prompts").mkdir(parents=True)
    brief = tmp_path / "run" / "prompts" / "brief.md"
    brief.write_text("as the run began")
    (tmp_path / "run" / "workspace.yaml").write_text(
        "format: 1\nrun_id: r-1\nagent: agent.py:main\nkeep: {history: all, checkpoints: all}\n"
    )
    handle = satchel.open(store.url)
    assert handle.run(asking).status == "completed"
    (end,) = (row.line.seq for row in handle.history.log(type="closed"))
    done = [row.line.seq for row in handle.history.log(type="step.completed")]
    handle.history.rewind(to=done[1])  # there, the result of b is on record, and b is not done
    (back,) = (row.line.seq for row in handle.history.log(type="rewound"))
    assert handle.resume(asking).status == "completed" and calls == ["a", "b", "c", "c"]
    ruled(store, f"{{history: {look(store).moment.seq - end}, checkpoints: 1}}")
    handle.prune()
    assert done[1] < journal.first_kept(store) <= back, "the test is to remove the step, and to keep the return"
    assert handle.history.prompt("brief", prompts.version_of(b"old")) == "old"
    handle.history.rewind(to=back)
    assert handle.resume(asking).status == "completed" and calls == ["a", "b", "c", "c", "c"]
    assert handle.check().ok
