"""pause.yaml: asked for, filled in, read back, mended, and gone on from."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import warm
from waits import PATIENCE

import satchel
from satchel import Item, Partial, Resource, Run, agent, run, run_async, step
from satchel.runtime.execution import running
from satchel.runtime.present import describe_record
from satchel.workspace import journal
from satchel.workspace.base.errors import InvalidFile, Refused, StorageFailed
from satchel.workspace.formats import yamltext
from satchel.workspace.inspect.load import look
from satchel.workspace.journal import Closed, Opened, Paused, PauseLate, PauseRequested, Resumed
from satchel.workspace.lifecycle import pausing
from satchel.workspace.store import open_store
from satchel.workspace.store.disk_store import DiskStore
from satchel.workspace.views import guarded_files
from satchel.workspace.views.guarded_files import until_settled

PAUSE = "pause.yaml"


def text(workspace: Path) -> str:
    return (workspace / PAUSE).read_text()


def said(workspace: Path) -> Any:
    return yamltext.load(text(workspace), PAUSE).value


def records(workspace: Path, kind: type) -> list[Any]:
    lines = journal.read(open_store(str(workspace)), after=0).lines
    return [line.record for line in lines if isinstance(line.record, kind)]


async def until(is_so: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110  # a file has no event
            await asyncio.sleep(0.01)


def making(workspace: Path, calls: list[str], meanwhile: Callable[[], Awaitable[None]]) -> Any:
    """Two items. In the first step of the first something happens meanwhile, the first time."""

    @step
    async def first() -> str:
        calls.append("first")
        if calls.count("first") == 1:
            await meanwhile()
        return "1"

    @step
    async def second(text: str) -> str:
        calls.append(text)
        return text

    async def work(run: Run[Any], item: Item) -> None:
        await first()
        await second(item.text)

    @agent
    async def main(run: Run[Any]) -> None:
        calls.append("entered")
        if not run.todo.items:
            await run.plan(None, ["one", "two"])
        await run.todo.each(work)

    return main


def dropping(workspace: Path, content: str, then: Callable[[], Awaitable[None]] | None = None) -> Any:
    async def drop() -> None:
        (workspace / PAUSE).write_text(content)
        await until(lambda: "draining" in text(workspace))
        if then:
            await then()

    return drop


def paused(workspace: Path, calls: list[str], content: str = "", then: Any = None) -> Any:
    main = making(workspace, calls, dropping(workspace, content, then))
    assert run(workspace, main).status == "paused"
    return main


@pytest.mark.parametrize(
    "content",
    ["", "\n\n", "# only a remark\n", "# why\nreason: maintenance # the disk\n\nx-ticket: OPS-1\nby: ann\n# end\n"],
    ids=["empty", "blank", "a comment", "much"],
)
def test_what_a_person_has_put_into_the_file_is_lost(workspace: Path, calls: list[str], content: str) -> None:
    main = paused(workspace, calls, content)
    assert calls == ["entered", "first"]
    file = said(workspace)
    assert file["status"] == "paused" and file["checkpoint"]["verified"] and file["position"]["item"] == "1-one"
    assert all(line in text(workspace) for line in content.splitlines() if line.startswith(("#", "reason", "x-", "by")))
    places = [text(workspace).find(line) for line in content.splitlines() if line]
    assert places == sorted(places), "in their order"
    assert run(workspace, main).status == "paused" and calls == ["entered", "first"]
    assert run(workspace, main, wake=True).status == "completed" and not (workspace / PAUSE).exists()
    assert calls == ["entered", "first", "entered", "one", "first", "two"]


def test_a_resume_of_a_copied_run_waits_for_its_files(
    workspace: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are new at their place, and saved long ago: nobody is in the middle of that."""
    main, copy, waits = paused(workspace, calls), workspace.with_name("copy"), list[float]()
    shutil.copytree(workspace, copy)
    for path in copy.rglob("*"):
        os.utime(path, (time.time() - 60,) * 2)
    clock = SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=waits.append)
    monkeypatch.setattr(guarded_files, "time", clock)
    assert run(copy, main, wake=True, adopt=True).status == "completed" and waits == []


@pytest.mark.parametrize("damage", ["{half", "status: gone\n", "- a\n- b\n", "reason: [1]\n", "\x00\x01"])
def test_a_damaged_file_is_not_obeyed_or_not_kept(workspace: Path, calls: list[str], damage: str) -> None:
    paused(workspace, calls, damage)
    assert (workspace / "pause.rejected.yaml").read_text() == damage
    assert "pause.yaml was not accepted as it was" in (workspace / "pause.rejected.txt").read_text()
    assert said(workspace)["status"] == "paused"


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_second_damaged_file_overwrites_the_first(workspace: Path, kind: str) -> None:
    """However the first one was kept."""
    store, path = DiskStore(workspace), workspace / PAUSE
    facts = {"reason": "manual"}
    if kind == "folder":
        path.mkdir()
        (path / "mine").touch()
    else:
        path.write_text("first: [") if kind == "file" else path.symlink_to("/etc/passwd")
    pausing._fill(store, facts)
    path.write_text("second: [")
    pausing._fill(store, facts)
    path.write_text("second: [")
    pausing._fill(store, facts)
    path.unlink()
    path.mkdir()
    pausing._fill(store, facts)
    kept = {name: workspace / f"pause.{name}.yaml" for name in ("rejected", "rejected-2", "rejected-3")}
    assert kept["rejected-2"].read_text() == "second: [" and kept["rejected-3"].is_dir()
    first = kept["rejected"]
    assert first.is_symlink() if kind == "link" else (first / "mine").exists() if kind == "folder" else first.is_file()
    assert all(each.with_suffix(".txt").read_text() for each in kept.values()) and said(workspace) == facts


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_pause_that_is_no_file_is_not_obeyed(workspace: Path, calls: list[str], kind: str) -> None:
    async def drop() -> None:
        path = workspace / PAUSE
        path.mkdir() if kind == "folder" else path.symlink_to("/etc/passwd")
        await until(lambda: path.is_file() and not path.is_symlink() and "draining" in text(workspace))

    assert run(workspace, making(workspace, calls, drop)).status == "paused"
    assert said(workspace)["status"] == "paused" and os.path.lexists(workspace / "pause.rejected.yaml")


def test_a_file_damaged_while_paused_lets_the_run_go_on(workspace: Path, calls: list[str]) -> None:
    main = paused(workspace, calls)
    whole = text(workspace)
    (workspace / PAUSE).write_text("status: [")
    before = {path: path.read_bytes() for path in workspace.rglob("*") if path.is_file()}
    for wake in (False, True):
        with pytest.raises(InvalidFile, match="stays paused"):
            run(workspace, main, wake=wake)
    assert {path: path.read_bytes() for path in workspace.rglob("*") if path.is_file()} == before
    assert calls.count("entered") == 1
    (workspace / PAUSE).write_text(whole)
    assert run(workspace, main, wake=True).status == "completed"


def test_a_file_removed_while_paused_lets_the_run_go_on(workspace: Path, calls: list[str]) -> None:
    main = paused(workspace, calls, "reason: maintenance\n")
    (workspace / PAUSE).unlink()
    assert run(workspace, main).status == "paused" and calls.count("entered") == 1
    assert said(workspace)["status"] == "paused" and said(workspace)["reason"] == "maintenance"
    assert run(workspace, main, wake=True).status == "completed"


def test_who_has_removed_the_file_has_to_resume_twice(workspace: Path, calls: list[str]) -> None:
    main = paused(workspace, calls)
    (workspace / PAUSE).unlink()
    assert run(workspace, main, wake=True).status == "completed"
    assert not (workspace / PAUSE).exists()


def test_a_file_removed_while_it_awaits_instructions_lets_the_run_go_on_without(
    workspace: Path, calls: list[str]
) -> None:
    main = paused(workspace, calls, "resume: await_instructions\n")
    (workspace / PAUSE).unlink()
    assert run(workspace, main, wake=True).status == "paused"
    assert said(workspace)["resume"] == "await_instructions"
    with pytest.raises(Refused):
        run(workspace, main, wake=True)
    (workspace / PAUSE).write_text("status: [")
    with pytest.raises(InvalidFile) as damaged:
        run(workspace, main, wake=True)
    assert "fix the file" in damaged.value.remedy and "remove" not in damaged.value.remedy


def test_a_file_that_nobody_has_touched_is_waited_for(
    workspace: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was saved a moment ago, but not by an editor that may be in the middle of it."""
    main = paused(workspace, calls, "reason: maintenance\n")
    (closed,) = records(workspace, Closed)
    assert closed.pause_file == DiskStore(workspace).version(PAUSE)
    read: list[str] = []
    monkeypatch.setattr(pausing, "until_settled", lambda *given: read.append(given[1]) or until_settled(*given))
    assert run(workspace, main).status == "paused" and not read
    os.utime(workspace / PAUSE)
    assert run(workspace, main).status == "paused" and read == [PAUSE]
    assert run(workspace, main, wake=True).status == "completed"


@pytest.mark.parametrize("typed", ["instructions: be brief\nresume: continue", "resume: await_instructions"])
def test_what_is_typed_while_draining_is_taken_for_the_runs_own_words(
    workspace: Path, calls: list[str], typed: str
) -> None:
    async def type_more() -> None:
        (workspace / PAUSE).write_text(text(workspace).replace("resume: continue", typed))

    paused(workspace, calls, "reason: maintenance\n", then=type_more)
    assert typed in text(workspace)
    (closed,) = records(workspace, Closed)
    assert not closed.pause_file


def test_resume_typed_into_the_file_is_not_obeyed(workspace: Path, calls: list[str]) -> None:
    main = paused(workspace, calls)
    (workspace / PAUSE).write_text(text(workspace).replace("status: paused", "status: resume"))
    assert run(workspace, main).status == "completed" and not (workspace / PAUSE).exists()
    assert len(records(workspace, Resumed)) == 1


def test_resume_typed_while_draining_is_written_over(workspace: Path, calls: list[str]) -> None:
    """In the moments before the run looks at the file again: it is its own that is filled in last."""

    async def resume() -> None:
        (workspace / PAUSE).write_text(text(workspace).replace("status: draining", "status: resume"))

    main = making(workspace, calls, dropping(workspace, "", resume))
    outcome = run(workspace, main)
    if outcome.status == "paused":  # it had looked for the last time
        assert "status: resume" in text(workspace)
        outcome = run(workspace, main)
    assert outcome.status == "completed" and not (workspace / PAUSE).exists()
    assert calls.count("first") == 2 and calls.count("one") == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("resume", "await_instructions"),
        ("reason", "another"),
        ("expected_until", "2099-01-01T00:00:00.000Z"),
        ("x-note", "mine"),
    ],
)
def test_what_is_typed_while_draining_is_written_over(workspace: Path, calls: list[str], key: str, value: str) -> None:
    async def change() -> None:
        (workspace / PAUSE).write_text(yamltext.set_value(text(workspace), (key,), value, file=PAUSE))

    main = paused(workspace, calls, "reason: manual\n", change)
    assert said(workspace)[key] == value and said(workspace)["status"] == "paused"
    if key == "resume":
        with pytest.raises(Refused, match="instructions"):
            run(workspace, main, wake=True)


def test_a_pause_that_comes_with_a_signal_is_over_with_the_next_start(workspace: Path, calls: list[str]) -> None:
    async def both() -> None:
        (workspace / PAUSE).touch()
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: "draining" in text(workspace))

    main = making(workspace, calls, both)
    assert run(workspace, main).status == "paused"
    assert run(workspace, main).status == "paused", "a person has asked for it, and has not said that it is over"
    assert calls.count("entered") == 1 and run(workspace, main, wake=True).status == "completed"


def test_a_pause_for_a_signal_is_not_over_with_the_next_start(workspace: Path, calls: list[str]) -> None:
    async def term() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: (workspace / PAUSE).exists())

    main = making(workspace, calls, term)
    assert run(workspace, main).status == "paused" and said(workspace)["reason"] == "signal"
    assert run(workspace, main).status == "completed"


def test_a_pause_is_not_over_at_its_time(workspace: Path, calls: list[str]) -> None:
    end = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    main = paused(workspace, calls, f"expected_until: {end}\n")
    assert run(workspace, main).status == "paused"
    (workspace / PAUSE).write_text(text(workspace).replace(said(workspace)["expected_until"], "2020-01-01T00:00:00Z"))
    assert run(workspace, main).status == "completed"


def test_instructions_are_not_asked_for_or_not_handed_over(workspace: Path, calls: list[str]) -> None:
    told: list[str] = []

    async def nothing() -> None:
        await dropping(workspace, "resume: await_instructions\n")()

    inner = making(workspace, calls, nothing)

    @agent
    async def main(run: Run[Any]) -> None:
        told.append(run.instructions)
        await inner.function(run)

    assert run(workspace, main).status == "paused"
    with pytest.raises(Refused, match="waits for instructions"):
        run(workspace, main, wake=True)
    (workspace / PAUSE).write_text(text(workspace) + "instructions: |\n  Leave out\n  the second.\n")
    assert run(workspace, main, wake=True).status == "completed"
    assert told == ["", "Leave out\nthe second."]


def test_a_restarted_step_remembers_what_it_had_come_to(workspace: Path) -> None:
    seen: list[Any] = []

    @step
    async def long(run: Run[Any]) -> None:
        seen.append(run.saved_progress)
        if len(seen) < 2:
            (workspace / PAUSE).write_text("resume: restart_step\n")
            while True:
                await run.progress(5)
                await asyncio.sleep(0.01)

    @step
    async def stream(out: Partial) -> str:
        await out.write("x")
        return out.recovered or "nothing"

    @agent
    async def main(run: Run[Any]) -> str:
        await long()
        return await stream()

    assert run(workspace, main).status == "paused"
    assert run(workspace, main, wake=True).result == "nothing" and seen == [None, None]


def test_a_restarted_stream_that_was_cut_off_is_told_what_had_arrived(workspace: Path) -> None:
    heard: list[str | None] = []

    @step
    async def stream(out: Partial) -> str:
        heard.append(out.recovered)
        if len(heard) == 1:
            await out.write("half of it")
            (workspace / PAUSE).write_text("resume: restart_step\n")
            await asyncio.sleep(60)
        return out.text

    @agent
    async def main(run: Run[Any]) -> str:
        return await stream()

    assert run(workspace, main, drain_timeout=0.0).status == "paused"
    assert run(workspace, main, wake=True).status == "completed" and heard == [None, None]


@pytest.mark.parametrize("mode", ["drain", "emergency"])
def test_a_file_that_a_crash_has_left_is_obeyed_or_swallows_a_new_wish(
    workspace: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """It came between the record that the pause is over and the removal."""
    main = paused(workspace, calls)
    if mode == "emergency":
        (workspace / PAUSE).write_text(text(workspace).replace("mode: drain", "mode: emergency"))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pausing, "clear", mock.Mock(side_effect=KeyboardInterrupt))
        run(workspace, main, wake=True)
    left = text(workspace)
    assert records(workspace, Resumed) and said(workspace)["mode"] == mode
    (workspace / PAUSE).write_text(f"{left}expected_until: 2020-01-01T00:00:00Z\ninstructions: of before\n")
    store = DiskStore(workspace)
    pausing.ask(store, PauseRequested(reason="once more", by="me", mode="drain"), look(store).moment)
    assert said(workspace) == {"status": "requested", "reason": "once more", "by": "me", "mode": "drain"}
    assert run(workspace, main).status == "paused" and said(workspace)["reason"] == "once more"
    assert said(workspace)["requested_at"] not in left
    (workspace / PAUSE).write_text(left)  # as a power failure may bring it back
    assert run(workspace, main, wake=True).status == "completed" and not (workspace / PAUSE).exists()


@pytest.mark.parametrize("content", ["reason: mine\n", "mode: emergency\n", "expected_until: 2020-01-01T00:00:00Z\n"])
@pytest.mark.parametrize("has_run", [False, True])
def test_a_wish_that_was_never_recorded_is_not_over_when_the_run_goes_on(
    workspace: Path, calls: list[str], content: str, has_run: bool
) -> None:
    async def nothing() -> None:
        if has_run and calls.count("entered") == 1:
            raise KeyboardInterrupt

    main = making(workspace, calls, nothing)
    if has_run:
        with pytest.raises(KeyboardInterrupt):
            run(workspace, main)
    (workspace / PAUSE).write_text(content)
    assert run(workspace, main, wake=True).status == "completed" and not (workspace / PAUSE).exists()


def test_a_file_that_can_not_be_removed_lets_the_agent_go_on(
    workspace: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main = paused(workspace, calls)
    remove = DiskStore.remove

    def refused(self: DiskStore, path: str, **options: Any) -> None:
        if path == PAUSE:
            raise StorageFailed("can't be removed", path=path, why="read-only")
        remove(self, path, **options)

    monkeypatch.setattr(DiskStore, "remove", refused)
    with pytest.raises(StorageFailed, match="read-only"):
        run(workspace, main, wake=True)
    assert calls.count("first") == 1, "it has not gone on"


def test_resume_saved_in_the_same_tick_is_not_seen(workspace: Path, calls: list[str]) -> None:
    """`paused` and `resume` have as many letters, and some file systems count in seconds."""
    main = paused(workspace, calls)
    status = (workspace / PAUSE).stat()
    with (workspace / PAUSE).open("r+") as file:
        changed = file.read().replace("status: paused", "status: resume")
        file.seek(0)
        file.write(changed)
    os.utime(workspace / PAUSE, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert DiskStore(workspace).version(PAUSE) == records(workspace, Closed)[-1].pause_file
    assert run(workspace, main).status == "completed"


def test_a_second_wish_takes_the_place_of_the_first(workspace: Path, calls: list[str]) -> None:
    async def again() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.1)

    main = paused(workspace, calls, "reason: maintenance\n", again)
    assert said(workspace)["reason"] == "maintenance" and len(records(workspace, PauseRequested)) == 1
    assert run(workspace, main).status == "paused", "the signal is not why it is paused"


def test_what_never_began_can_not_be_paused(workspace: Path, calls: list[str]) -> None:
    main = making(workspace, calls, dropping(workspace, ""))
    (workspace / PAUSE).write_text("reason: not yet\n")
    assert run(workspace, main).status == "paused" and not calls
    assert said(workspace)["status"] == "paused" and said(workspace)["reason"] == "not yet"
    (workspace / PAUSE).write_text(text(workspace).replace("status: paused", "status: resume"))
    run(workspace, main)
    assert calls[:2] == ["entered", "first"]


def test_a_wish_while_it_is_stopped_is_forgotten(workspace: Path, calls: list[str]) -> None:
    async def term() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.1)

    main = making(workspace, calls, term)
    assert run(workspace, main).status == "paused"
    (workspace / PAUSE).write_text("reason: mine\n")
    assert run(workspace, main).status == "paused" and calls.count("entered") == 1
    assert run(workspace, main, wake=True).status == "completed"


@pytest.mark.parametrize(
    ("words", "is_late"),
    [("reason: mine\nby: ada\nmode: cancel\n", True), ("reason: [\n", True), ("status: resume\n", False)],
)
def test_a_wish_that_the_run_outlives_is_forgotten(workspace: Path, words: str, is_late: bool) -> None:
    """The agent never waits, so nothing notices the file before the end."""

    @agent
    async def main(run: Run[Any]) -> str:
        (workspace / PAUSE).write_text(words)
        return "done"

    assert run(workspace, main).status == "completed" and not (workspace / PAUSE).exists()
    late = records(workspace, PauseLate)
    assert len(late) == is_late and not records(workspace, PauseRequested)
    if "ada" in words:
        assert late == [PauseLate(reason="mine", by="ada", mode="cancel")]
        assert describe_record(late[0]).line == "too late    mine, by ada: the run completed before it could stop"


def saving(monkeypatch: pytest.MonkeyPatch, workspace: Path, of: Any, name: str) -> None:
    """Whenever this is called, a person saves pause.yaml."""
    call = getattr(of, name)

    def called(*args: Any) -> Any:
        (workspace / PAUSE).write_text("reason: not on this machine\n")
        return call(*args)

    monkeypatch.setattr(of, name, called)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_wish_that_comes_while_a_run_closes_is_lost(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        if is_cancelled:
            await run.scope("all", step(lambda: (workspace / PAUSE).write_text("mode: cancel\n")))
            await asyncio.sleep(10)

    saving(monkeypatch, workspace, journal.Journal, "roll_up")
    assert run(workspace, main).status == ("cancelled" if is_cancelled else "completed")
    assert text(workspace) == "reason: not on this machine\n"


@pytest.mark.parametrize("at", [(journal, "mend"), (journal.Journal, "roll_up")])
@pytest.mark.parametrize("first", ["reason: mine\n", ""])
def test_a_wish_that_comes_while_a_completed_run_is_opened_is_lost(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, at: tuple[Any, str], first: str
) -> None:
    @agent
    async def main(run: Run[Any]) -> None: ...

    assert run(workspace, main).status == "completed"
    if first:
        (workspace / PAUSE).write_text(first)
    else:
        (workspace / "state.json").unlink()
    saving(monkeypatch, workspace, *at)
    assert run(workspace, main, wake=True).status == "completed"
    assert text(workspace) == "reason: not on this machine\n"


def test_a_run_that_completes_while_draining_leaves_the_file(workspace: Path) -> None:
    @step
    async def last() -> None:
        (workspace / PAUSE).touch()
        await until(lambda: "draining" in text(workspace))

    @agent
    async def main(run: Run[Any]) -> str:
        await run.scope("all", lambda: last())
        return "done"

    outcome = run(workspace, main)
    if outcome.status == "paused":  # the agent had not returned yet
        outcome = run(workspace, main, wake=True)
    assert outcome.status == "completed" and not (workspace / PAUSE).exists()


def short(workspace: Path) -> None:
    (workspace / "workspace.yaml").write_text((workspace / "workspace.yaml").read_text() + "idle_below: 1h\n")


def test_a_short_pause_is_not_resumed_by_the_process_that_has_paused(workspace: Path, calls: list[str]) -> None:
    end = datetime.now(UTC) + timedelta(seconds=1)
    main = making(workspace, calls, dropping(workspace, f"expected_until: {end.isoformat()}\n"))
    short(workspace)
    assert run(workspace, main).status == "completed"
    assert datetime.now(UTC) >= end and len(records(workspace, Opened)) == 2
    assert len(records(workspace, Paused)) == len(records(workspace, Resumed)) == 1
    assert not (workspace / PAUSE).exists()


async def waiting_for_the_end_of_a_pause(workspace: Path, main: Any) -> asyncio.Task[Any]:
    waits = asyncio.Event()

    class Watching:
        def noticed(self, kind: str, text: str) -> None:
            if "it resumes by itself" in text:
                waits.set()

        def __getattr__(self, name: str) -> Any:
            return lambda *args: None

    process = asyncio.create_task(run_async(workspace, main, watch=Watching()))
    await waits.wait()
    return process


async def idling(workspace: Path, main: Any, released: list[str]) -> asyncio.Task[Any]:
    """A run in the middle of a short pause."""
    process = await waiting_for_the_end_of_a_pause(workspace, main)
    assert not (workspace / ".satchel/lease.json").exists()
    assert released == ["opened", "released"], "its resources are kept"
    moment = look(open_store(str(workspace))).moment
    assert moment.clean and moment.status == "paused", "it does not say that it is paused"
    return process


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("how", ["typed", "taken", "removed", "cancelled"])
def test_an_idle_process_keeps_the_run(workspace: Path, calls: list[str], how: str) -> None:
    end = datetime.now(UTC) + timedelta(minutes=50)
    released: list[str] = []

    @contextlib.contextmanager
    def resource() -> Any:
        released.append("opened")
        yield
        released.append("released")

    plain = making(workspace, calls, dropping(workspace, f"expected_until: {end.isoformat()}\n"))
    main = agent(resources=[Resource("disk", resource)])(plain.function)
    short(workspace)

    async def scene() -> None:
        process = await idling(workspace, main, released)
        if how == "typed":
            (workspace / PAUSE).write_text(text(workspace).replace("status: paused", "status: resume"))
            assert (await process).status == "completed"
        elif how == "taken":  # `satchel resume` in another process
            assert (await run_async(workspace, main, wake=True)).status == "completed"
            assert (await process).status == "paused"
        elif how == "removed":
            (workspace / PAUSE).unlink()
            assert (await process).status == "paused"
        else:
            process.cancel()
            with pytest.raises(asyncio.CancelledError):
                await process

    asyncio.run(scene())
    is_resumed = how in ("typed", "taken")
    assert calls == ["entered", "first", *(["entered", "one", "first", "two"] if is_resumed else [])]
    assert look(open_store(str(workspace))).moment.status == ("completed" if is_resumed else "paused")


def test_a_second_pause_in_the_same_process_has_no_time_limit(workspace: Path) -> None:
    end = datetime.now(UTC) + timedelta(seconds=0.5)

    @step
    async def drop(content: str, seconds: float) -> None:
        await dropping(workspace, content)()
        await asyncio.sleep(seconds)

    @agent
    async def main(run: Run[Any]) -> None:
        await drop(f"expected_until: {end.isoformat()}\n", 0)
        await drop("reason: again\n", 20)

    (workspace / "workspace.yaml").write_text((workspace / "workspace.yaml").read_text() + "idle_below: 1h\n")
    outcome = run(workspace, main, drain_timeout=1.0)
    assert outcome.status == "paused" and said(workspace)["reason"] == "again" and said(workspace)["forced"]


def test_a_signal_while_idling_is_not_heard(workspace: Path, calls: list[str]) -> None:
    end = datetime.now(UTC) + timedelta(seconds=PATIENCE)

    async def soon() -> None:
        asyncio.get_running_loop().call_later(1.0, os.kill, os.getpid(), signal.SIGTERM)

    main = making(workspace, calls, dropping(workspace, f"expected_until: {end.isoformat()}\n", soon))
    (workspace / "workspace.yaml").write_text((workspace / "workspace.yaml").read_text() + "idle_below: 1h\n")
    assert run(workspace, main).status == "paused" and said(workspace)["status"] == "paused"


@pytest.mark.parametrize("is_mended", [True, False])
def test_a_mistake_typed_while_idling_ends_the_process(workspace: Path, calls: list[str], is_mended: bool) -> None:
    """The run stays paused until the file is mended, and is not resumed at its time before that."""
    end = datetime.now(UTC) + timedelta(seconds=50 if is_mended else 2)
    main = making(workspace, calls, dropping(workspace, f"expected_until: {end.isoformat()}\n"))
    short(workspace)

    async def scene() -> None:
        process = await waiting_for_the_end_of_a_pause(workspace, main)
        good = text(workspace)
        (workspace / PAUSE).write_text(good + "mode: [\n")
        if is_mended:
            await asyncio.sleep(0.8)  # it has looked at it
            (workspace / PAUSE).write_text(good.replace("status: paused", "status: resume"))
            assert (await process).status == "completed"
        else:
            with pytest.raises(InvalidFile, match="stays paused"):
                await process

    asyncio.run(scene())


@pytest.mark.parametrize("resumes", [False, True])
def test_a_signal_on_the_way_to_a_short_pause_is_heard_at_its_end(
    workspace: Path, calls: list[str], resumes: bool
) -> None:
    """Whoever sends it waits for the end of the process."""
    end = datetime.now(UTC) + timedelta(seconds=3)

    async def at_once() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        if resumes:
            (workspace / PAUSE).write_text(text(workspace).replace("status: draining", "status: resume"))

    main = making(workspace, calls, dropping(workspace, f"expected_until: {end.isoformat()}\n", at_once))
    short(workspace)
    assert run(workspace, main).status == "paused" and datetime.now(UTC) < end
    assert len(records(workspace, Opened)) == 1 and said(workspace)["status"] in ("paused", "resume")


_PROGRAM = """
import asyncio, pathlib, sys
from satchel import agent, run, step

@step
async def hold():
    pathlib.Path("at").touch()
    await asyncio.sleep(1000)

@agent
async def main(run):
    pathlib.Path("entered").open("a").write("x")
    await hold()

print(run(sys.argv[1], main).status)
"""


@pytest.mark.parametrize("content", ["reason: mine\n", "mode: emergency\nreason: fire\n"])
def test_a_run_that_is_killed_on_its_way_to_a_pause_goes_on(workspace: Path, tmp_path: Path, content: str) -> None:
    command = [sys.executable, "-c", _PROGRAM, str(workspace)]
    process = warm.Popen(command, cwd=tmp_path)
    try:
        asyncio.run(until(lambda: (tmp_path / "at").exists()))
        (workspace / PAUSE).write_text(content)
        if "emergency" not in content:
            asyncio.run(until(lambda: "draining" in text(workspace)))
            process.kill()
        assert process.wait(timeout=PATIENCE) == -signal.SIGKILL
    finally:
        process.kill()
    again = warm.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert again.stdout == "paused\n", again.stderr
    assert (tmp_path / "entered").read_text() == "x"
    assert said(workspace)["status"] == "paused" and said(workspace)["reason"] in content


def test_a_crash_before_the_file_is_removed_pauses_again(
    workspace: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch, crash: type[BaseException]
) -> None:
    main = paused(workspace, calls)
    remove = DiskStore.remove

    def dies(self: DiskStore, path: str, **options: Any) -> None:
        if path == PAUSE:
            raise crash
        remove(self, path, **options)

    with monkeypatch.context() as patch, pytest.raises(crash):
        patch.setattr(DiskStore, "remove", dies)
        run(workspace, main, wake=True)
    assert (workspace / PAUSE).exists() and records(workspace, Resumed)
    assert run(workspace, main).status == "completed"


def test_another_process_ends_the_pause_after_the_look_of_a_start(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look saw the pause on record, and the file that the other process had removed."""

    @agent
    async def main(run: Run[Any]) -> str:
        return str(await run.ask("Go on?", wait_for=0))

    (workspace / PAUSE).write_text("reason: not yet\n")
    assert run(workspace, main).status == "paused"
    decide, file = running.decide, text(workspace)

    def decided(*args: Any) -> Any:
        monkeypatch.setattr(running, "decide", decide)
        (workspace / PAUSE).unlink()
        stays = decide(*args)
        assert stays.wanted.is_missing
        (workspace / PAUSE).write_text(file.replace("status: paused", "status: resume"))
        with ThreadPoolExecutor(1) as other:
            assert other.submit(run, workspace, main).result().status == "waiting"
        return stays

    monkeypatch.setattr(running, "decide", decided)
    assert run(workspace, main).status == "waiting"
    assert not (workspace / PAUSE).exists()


def test_another_process_pauses_after_the_look_of_a_start(
    workspace: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing() -> None: ...

    main, decide = making(workspace, calls, nothing), running.decide

    def decided(*args: Any) -> Any:
        monkeypatch.setattr(running, "decide", decide)
        goes = decide(*args)
        (workspace / PAUSE).write_text("reason: not yet\n")
        with ThreadPoolExecutor(1) as other:
            assert other.submit(run, workspace, main).result().status == "paused"
        return goes

    monkeypatch.setattr(running, "decide", decided)
    assert run(workspace, main).status == "paused"
    assert not calls and said(workspace)["reason"] == "not yet"


def test_a_reason_and_a_time_that_a_person_writes_into_a_pause_are_not_shown_or_taken(
    workspace: Path, calls: list[str]
) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["a"])
        await run.pause("lunch")

    assert run(workspace, main).status == "paused"
    file, handle = workspace / "pause.yaml", satchel.open(workspace)
    written = file.read_text().replace("reason: lunch", "reason: dinner with Ada")
    file.write_text(f"{written}expected_until: 2036-11-28T12:00:00Z\n")

    def shown() -> tuple[str, str, str]:
        status = handle.status()
        assert status.moment and status.moment.pause and status.state == "paused"
        return status.moment.reason, status.moment.pause.reason, status.moment.pause.until

    until = "2036-11-28T12:00:00.000Z"
    assert shown() == ("dinner with Ada", "dinner with Ada", until), "at once, before any start"
    remarks = handle.run(main).report.remarks
    said = f"pause.yaml: the run is paused now: dinner with Ada, by the agent, until {until}"
    assert [each.text for each in remarks if each.kind == "edited"] == [said]
    recorded = look(DiskStore(workspace)).moment
    assert recorded.pause and (recorded.pause.reason, recorded.pause.until) == ("dinner with Ada", until)
    assert json.loads((workspace / "state.json").read_text())["reason"] == "dinner with Ada"
    assert shown() == ("dinner with Ada", "dinner with Ada", until)
    seq = recorded.seq
    assert handle.run(main).status == "paused" and look(DiskStore(workspace)).moment.seq == seq, "once"
    file.write_text(file.read_text().replace("2036", "2026").replace("-11-28T12", "-11-01T12"))
    assert handle.run(main).status == "completed", "the time that was written is over"
