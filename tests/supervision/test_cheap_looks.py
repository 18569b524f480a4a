"""Looks at many runs that rest: a change is missed, or each look reads everything again. The clock of the looks is the
test's, so nothing here waits."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import satchel
from satchel import Run, agent
from satchel.results import ServeEvent
from satchel.runtime.live import utc_now
from satchel.runtime.status import Overview
from satchel.runtime.supervision import roots
from satchel.runtime.supervision.known_run import Known, RowOf, Schedule
from satchel.runtime.supervision.lookout import Lookout
from satchel.runtime.supervision.run_server import Server
from satchel.workspace.formats import yamltext
from satchel.workspace.inspect import discovery
from satchel.workspace.store import Syscalls, open_store

OLD = 1_700_000_000


@agent
async def asker(run: Run[Any]) -> None:
    await run.ask("Go on?", choices=["yes", "no"], wait_for=0)


@agent
async def parent(run: Run[Any]) -> None:
    await run.spawn(planner, "first")


@agent
async def planner(run: Run[Any]) -> None:
    await run.plan(None, ["one"])
    await run.todo.each(lambda run, item: None)


def made(root: Path, name: str, main: satchel.Agent[..., Any]) -> Path:
    """A run that rests, and did so long before."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {name}\nagent: agent.py:main\n")
    satchel.run(folder, main)
    for above, _, files in os.walk(folder):
        for each in [above, *(os.path.join(above, file) for file in files)]:
            os.utime(each, (OLD, OLD))
    return folder


class Looks:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, row_of: RowOf | None = None):
        """No signature is read only because there are few."""
        monkeypatch.setattr(roots, "_FEW", 0)
        self.now = time.monotonic()
        for module in (roots, discovery):
            clock = mock.Mock(monotonic=lambda: self.now, time_ns=time.time_ns)
            monkeypatch.setattr(module, "time", clock)
        self.told: list[ServeEvent] = []
        self.lookout = Lookout(str(root), None, self.told.append, row_of=row_of)
        self.read: list[str] = []
        signature = self.lookout.root.signature

        def counted(place: str) -> roots.RootSignature:
            self.read.append(os.path.basename(place))
            return signature(place)

        monkeypatch.setattr(self.lookout.root, "signature", counted)

    def look(self, after: float = 1.0) -> tuple[list[str], list[str]]:
        """The names of the runs that were read, and of those that are due."""
        self.now += after
        self.read.clear()
        self.lookout.look()
        return sorted({*self.read}), sorted(each.run_id for each in self.lookout.known.values() if each.due_since)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in "ab":
        made(tmp_path / "runs", name, asker)
    made(tmp_path / "runs/deep", "c", asker)
    for folder in (tmp_path / "runs", tmp_path / "runs/deep"):
        os.utime(folder, (OLD, OLD))
    return tmp_path / "runs"


@pytest.fixture
def looks(root: Path, monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(root, monkeypatch)


def test_what_rests_is_read_at_each_look(looks: Looks) -> None:
    assert looks.look() == (["a", "b", "c"], [])
    assert looks.look(0.0) == ([], [])


def saved_in_place(folder: Path) -> None:
    path = folder / "approvals/a1.yaml"
    with path.open("r+") as file:
        text = file.read().replace("decision:", "decision: yes", 1)
        file.seek(0)
        file.write(text)


def renamed_over(folder: Path) -> None:
    saved_in_place(folder)
    (folder / "approvals/a1.yaml").rename(folder / "a1.new")
    (folder / "a1.new").rename(folder / "approvals/a1.yaml")


def sent(folder: Path) -> None:
    satchel.open(folder).answer("yes")


@pytest.mark.parametrize("change", [saved_in_place, renamed_over, sent])
def test_an_answer_is_seen_a_minute_later(root: Path, looks: Looks, change: Callable[[Path], None]) -> None:
    looks.look()
    change(root / "b")
    assert looks.look(0.0) == (["b"], ["b"])


def test_an_answer_in_the_tick_of_the_last_look_is_never_seen(
    root: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause, tick = root / "b/pause.yaml", time.time_ns() // 10**9 * 10**9
    pause.write_text("status: paused\n")
    os.utime(pause, ns=(tick, tick))
    page = Overview(str(root))
    before = page.look(now=True)
    assert looks.look()[1] == []
    with pause.open("r+") as file:
        file.write("status: resume\n")
    os.utime(pause, ns=(tick, tick))
    clock = mock.Mock(monotonic=lambda: looks.now, time_ns=lambda: time.time_ns() + 3 * 10**9)
    monkeypatch.setattr(roots, "time", clock)
    assert looks.look()[1] == ["b"]
    assert page.look(now=True).number > before.number


def test_runs_that_come_go_or_move_are_seen_a_minute_later(root: Path, looks: Looks) -> None:
    looks.look()
    new = root / "deep/new"
    new.mkdir()
    (new / "workspace.yaml").write_text("format: 1\nrun_id: new\nagent: agent.py:main\n")
    assert looks.look(0.0)[1] == ["new"]
    (root / "deep/new").rename(root / "moved")
    (root / "a").rename(root / ".hidden")
    assert looks.look(0.0)[1] == ["new"]
    assert sorted(os.path.relpath(each, root) for each in looks.lookout.known) == ["b", "deep/c", "moved"]
    (root / "moved/workspace.yaml").unlink()
    (root / "link").symlink_to(root / "b")
    assert looks.look(0.0)[1] == []
    assert sorted(os.path.relpath(each, root) for each in looks.lookout.known) == ["b", "deep/c"]


def test_an_edit_that_changes_no_glanced_at_file_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the plan of a sub-agent: the signature of each run is read once a minute."""
    folder = made(tmp_path / "runs", "a", parent)
    looks = Looks(tmp_path / "runs", monkeypatch)
    looks.look()
    todo = folder / "agents/first/todo.md"
    with todo.open("a") as file:
        file.write("- [ ] one more\n")
    assert looks.look(0.0) == ([], [])
    assert looks.look(60.0) == (["a"], ["a"])


def test_names_that_change_without_a_new_time_of_their_folder_are_never_seen(root: Path, looks: Looks) -> None:
    """Some file systems note none."""
    looks.look()
    status = (root / "deep").stat()
    (root / "deep/c").rename(root / "deep/d")
    os.utime(root / "deep", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert looks.look(60.0) == (["a", "b", "d"], [])


def test_a_change_in_the_tick_of_the_look_is_never_seen(root: Path, looks: Looks) -> None:
    looks.look()
    folder = root / "a"
    now = time.time()
    os.utime(folder, (now, now))
    looks.look(0.0)
    (folder / "pause.yaml").write_text("status: resume\n")
    os.utime(folder, (now, now))
    assert looks.look(0.0)[0] == ["a"]


def test_a_clock_that_is_set_back_leaves_times_unseen(looks: Looks) -> None:
    looks.look()
    clock = looks.lookout._clock
    looks.lookout._clock = lambda: clock().replace(year=2000)
    assert looks.look(0.0)[0] == ["a", "b", "c"]


def test_a_look_is_made_in_the_thread_that_hears_signals(root: Path) -> None:
    server = Server(str(root), 1, lambda event: None)
    threads = []
    look = server._lookout.look

    def noted() -> None:
        threads.append(threading.current_thread())
        look()

    server._lookout.look = noted  # type: ignore[method-assign]
    server.turn()
    assert threads and threads[0] is not threading.main_thread()


def test_a_look_that_hangs_keeps_signals_from_being_heard(root: Path) -> None:
    server, goes_on = Server(str(root), 1, lambda event: None), threading.Event()
    server._lookout.look = lambda: goes_on.wait()  # type: ignore[assignment, method-assign]
    server.turn()
    server.turn()
    assert not server.is_idle
    goes_on.set()


def test_a_run_that_a_program_wants_ends_the_look_that_is_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        made(tmp_path / "runs", name, asker)
    apart = made(tmp_path, "apart", asker)
    lookout = Lookout(str(tmp_path / "runs"), None, lambda event: None)

    def wanted_meanwhile(pairs: Any) -> dict[str, list[str]]:
        for _ in pairs:
            store = open_store(str(apart))
            lookout.want(str(apart), Known(str(apart), store, False, Schedule(store, utc_now())))
        return {}

    monkeypatch.setattr(discovery, "duplicate_groups", wanted_meanwhile)
    lookout.look()
    assert str(apart) in {known.folder for known in lookout.left()} and lookout.has_looked
    lookout.look()
    assert str(apart) in lookout.known, "it is not below the root, but wanted"


def test_the_first_look_at_a_run_lists_a_folder_twice_or_reads_yaml(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, listed = Looks(root, monkeypatch), list[str]()
    scan = Syscalls.scan

    def noted(calls: Syscalls, path: str) -> dict[str, os.stat_result]:
        listed.append(path)
        return scan(calls, path)

    monkeypatch.setattr(Syscalls, "scan", noted)
    monkeypatch.setattr(yamltext, "load", None)
    looks.look()
    in_runs = [path for path in listed if path.startswith(f"{root}/")]
    assert in_runs and len(in_runs) == len({*in_runs})
    assert not looks.told


def test_the_collector_goes_through_all_runs_of_a_first_look_or_stays_off_after_it(looks: Looks) -> None:
    was_on, signature = list[bool](), looks.lookout.root.signature

    def noted(place: str) -> roots.RootSignature:
        was_on.append(gc.isenabled())
        return signature(place)

    looks.lookout.root.signature = noted  # type: ignore[method-assign]
    looks.look()
    assert was_on and not any(was_on) and gc.isenabled()
    was_on.clear()
    looks.look(60.0)
    assert was_on and all(was_on)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of journals that are read whole."""
    paths, real = list[str](), Syscalls.read

    def noted(calls: Syscalls, path: str, limit: int) -> tuple[bytes, os.stat_result]:
        paths.extend([path] if "/journal/" in path else [])
        return real(calls, path, limit)

    monkeypatch.setattr(Syscalls, "read", noted)
    return paths


def test_a_look_at_a_run_that_rests_reads_its_journal(root: Path, looks: Looks, read: list[str]) -> None:
    """All of it is in the checkpoint of its stop."""
    looks.look()
    found = satchel.ls(root)
    assert not read and {each.state for each in found} == {"waiting"} and all(each.questions for each in found)
    assert satchel.open(root / "b").answer("yes").is_recorded
    max((root / "b/checkpoints").glob("*.json")).unlink()
    read.clear()
    (found,) = satchel.ls(root / "b")
    assert len(read) == 1 and found.moment is not None and found.moment.new_answers, "it is behind the checkpoint"


def test_a_journal_that_does_not_reach_its_checkpoint_seems_whole(root: Path, looks: Looks) -> None:
    (path,) = (root / "b/journal").iterdir()
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"\n", 0, -1) + 1])
    assert [each.state for each in satchel.ls(root)] == ["waiting", "damaged", "waiting"]
    looks.look()
    assert [(each.kind, os.path.basename(each.folder)) for each in looks.told] == [("damaged", "b")]


def test_a_torn_journal_is_taken_for_one_that_ends_with_its_checkpoint(root: Path, read: list[str]) -> None:
    (path,) = (root / "b/journal").iterdir()
    with path.open("ab") as file:
        file.write(b'{"seq":')
    (found,) = satchel.ls(root / "b")
    assert read == [str(path)] and found.state == "waiting" and "torn tail" in str(found.complaints)
