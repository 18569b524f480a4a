"""The 5% rule, and that nothing a person saves while the run is going is overwritten."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.workspace.base import stamp
from satchel.workspace.base.errors import StorageFailed
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import PlanChanged, ScopeBegun, StepCompleted
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.lifecycle.workspace import Workspace
from satchel.workspace.plan import Splice
from satchel.workspace.store import DiskStore, Store, Version, open_store
from satchel.workspace.views import projection
from satchel.workspace.views.projector import SHARE, Projector


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.writing = 0.0
        self.longest = 0.0

    def __call__(self) -> float:
        return self.now


class Slow:
    """A document that takes a while, and notes when it was written."""

    def __init__(self, clock: Clock, takes: Callable[[], float], name: str = "", order: list[str] | None = None):
        self.clock, self.takes, self.name, self.order = clock, takes, name, order if order is not None else []
        self.writes = 0

    def write(self) -> None:
        took = self.takes()
        self.clock.now += took
        self.clock.writing += took
        self.clock.longest = max(self.clock.longest, took)
        self.writes += 1
        self.order.append(self.name)


@given(st.integers(0, 2**32), st.integers(1, 5), st.lists(st.floats(0, 0.5), min_size=1, max_size=200))
def test_writing_never_takes_more_than_its_share_plus_one_write(seed: int, documents: int, pauses: list[float]) -> None:
    choose, clock = random.Random(seed), Clock()
    projector = Projector(clock)
    slow = [Slow(clock, lambda: choose.choice([0.0, 0.001, 0.05, 1.0])) for _ in range(documents)]
    due: list[float] = []
    projector.wake = lambda delay: due.append(clock.now + delay)
    for pause in pauses:
        clock.now += pause
        while due and due[0] <= clock.now:
            due.pop(0)
            projector.catch_up()
        projector.mark(choose.choice(slow))
        # All of the time but one write, of the longest there was, is paid for twenty times over.
        assert clock.writing <= (clock.now - clock.writing) / SHARE + clock.longest + 1e-9
        assert len(due) <= 1


def test_the_one_that_waits_longest_comes_first() -> None:
    clock, order = Clock(), list[str]()
    projector = Projector(clock)
    a, b, c = (Slow(clock, lambda: 1.0, name, order) for name in "abc")
    for each in (a, b, c, b, a, a):
        projector.mark(each)
    for _ in range(2):
        clock.now += 20
        projector.catch_up()
    assert order == ["a", "b", "c"]
    clock.now += 20
    projector.catch_up()
    assert order == ["a", "b", "c", "a"]


def test_what_waits_is_written_when_it_was_promised_and_not_before() -> None:
    clock = Clock()
    projector = Projector(clock)
    delays: list[float] = []
    projector.wake = delays.append
    slow = Slow(clock, lambda: 0.1)
    projector.mark(slow)
    assert (slow.writes, delays) == (1, [])
    projector.mark(slow)
    assert delays == [pytest.approx(2.0)]
    clock.now += 1.9
    projector.mark(slow)
    assert slow.writes == 1 and len(delays) == 1
    clock.now += 0.2
    projector.catch_up()
    assert slow.writes == 2


def test_at_a_stop_everything_is_written_whatever_it_costs() -> None:
    clock = Clock()
    projector = Projector(clock)
    slow = [Slow(clock, lambda: 1.0) for _ in range(5)]
    for each in slow:
        projector.mark(each)
    projector.drop(slow[3])
    projector.write_all()
    assert [each.writes for each in slow] == [1, 1, 1, 0, 1]


class Elsewhere:
    """Writes in other threads, among them some that are not the projector's."""

    def __init__(self) -> None:
        self.is_idle = True
        self.on_idle: Callable[[], None] | None = None

    def do(self, path: str, job: Callable[[], object]) -> None:
        self.is_idle = False

    def wait(self) -> None: ...

    def close(self) -> None: ...

    def land(self) -> None:
        self.is_idle = True
        assert self.on_idle
        self.on_idle()


def test_a_report_that_is_written_meanwhile_delays_everything_for_hours() -> None:
    clock, behind = Clock(), Elsewhere()
    projector = Projector(clock, behind)
    first, second = Slow(clock, lambda: 0.0), Slow(clock, lambda: 0.0)
    projector.mark(first)
    clock.now = 300.0  # nothing was to be written all that time
    behind.do("report.json", lambda: None)
    projector.mark(first)
    projector.mark(second)
    clock.now += 0.5
    behind.land()
    clock.now += SHARE * 0.5
    projector.catch_up()
    assert (first.writes, second.writes) == (2, 1)
    clock.now += 100.0
    behind.do("report.json", lambda: None)
    behind.land()
    projector.mark(second)
    assert second.writes == 2, "what others have written is not the projector's time"


def test_a_failing_disk_is_not_swallowed() -> None:
    class Broken:
        def write(self) -> None:
            raise OSError("broken")

    with pytest.raises(OSError):
        Projector(Clock()).mark(Broken())


# With files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "workspace.yaml").write_text("format: 1\nrun_id: run-1\nagent: agent.py:main\n")
    return tmp_path


def working(workspace: Workspace) -> None:
    """A plan, a begun item, two steps."""
    add = workspace.journal.add
    add(PlanChanged(plan=(Splice(0, 0, "- [ ] a\n"),), by="agent"))
    add(ScopeBegun(scope="1", title="a", plan=((0, 1, "- [/] a ^1\n"),)))  # type: ignore[arg-type]
    for no in (1, 2, 3):
        add(StepCompleted(scope="1", no=no, step="read", args=f"{no}", n=0))
    workspace.journal.flush()
    workspace.mark_all()
    workspace.projector.write_all()


def stands_at(folder: Path, path: str) -> int:
    data = (folder / path).read_bytes()
    found = stamp.read_markdown(data, "run-1/") if path.endswith(".md") else stamp.read_json(data)
    assert found.untouched and found.stamp is not None
    return found.stamp.seq


def test_a_stop_is_on_record_as_a_clean_one_although_a_file_could_not_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where writes are requests, one may fail after the opening."""
    store = open_store("memory://fails")
    store.create("workspace.yaml", b"format: 1\nrun_id: run-1\nagent: agent.py:main\n")
    replace = type(store).replace

    def fails(self: Store, path: str, data: bytes, **options: Any) -> Version:
        if path == "state.json":
            raise StorageFailed("can't be written", path=path)
        return replace(self, path, data, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "exchange", lambda *_, **__: fails(store, "state.json", b""))
        patch.setattr(type(store), "replace", fails)
        with pytest.raises(StorageFailed), opened(store, "recover", Report()) as workspace:
            workspace.close("paused")
    assert not look(store).moment.clean
    with opened(store, "recover", Report()) as workspace:
        workspace.close("paused")
    assert look(store).moment.clean and store.version("state.json")


@pytest.mark.parametrize("path", ["state.json", "todo.md"])
def test_a_save_while_the_run_is_going_is_left_alone_and_mentioned(folder: Path, path: str) -> None:
    with opened(DiskStore(folder), "run", Report()) as workspace:
        working(workspace)
        (folder / path).write_bytes(b"mine")
        for _ in range(3):
            workspace.mark_all()
            workspace.projector.write_all()
        assert (folder / path).read_bytes() == b"mine"
        workspace.close("failed")
        assert (folder / path).read_bytes() == b"mine"
        assert workspace.guard.theirs == (path,)
        other = ({"state.json", "todo.md"} - {path}).pop()
        assert stands_at(folder, other) == workspace.moment.seq


def test_a_save_of_one_step_does_not_keep_the_others_from_being_shown(folder: Path) -> None:
    with opened(DiskStore(folder), "run", Report()) as workspace:
        working(workspace)
        (folder / "steps/1-a/03-read.json").write_bytes(b"mine")
        for no in (1, 2, 3):
            workspace.journal.add(StepCompleted(scope="1", no=no, step="read", args=f"{no}", n=0, ms=5))
        workspace.close("failed")
    assert (folder / "steps/1-a/03-read.json").read_bytes() == b"mine"
    for no in (1, 2):
        assert b'"ms": 5' in (folder / f"steps/1-a/0{no}-read.json").read_bytes()


def test_a_plan_written_by_hand_before_the_agents_own_is_not_overwritten(folder: Path) -> None:
    with opened(DiskStore(folder), "run", Report()) as workspace:
        (folder / "todo.md").write_bytes(b"- [ ] mine\n")
        working(workspace)
        workspace.close("failed")
    assert (folder / "todo.md").read_bytes() == b"- [ ] mine\n"


@pytest.mark.parametrize("path", ["state.json", "todo.md", "steps/1-a/01-read.json"])
def test_a_file_deleted_while_the_run_is_going_is_restored_at_the_latest_at_its_end(folder: Path, path: str) -> None:
    with opened(DiskStore(folder), "run", Report()) as workspace:
        working(workspace)
        (folder / path).unlink()
        workspace.close("failed")
    with opened(DiskStore(folder), "recover", Report()) as workspace:
        workspace.close()
    assert (folder / path).exists()
    assert stands_at(folder, "state.json") == workspace.moment.seq


def test_after_every_stop_all_files_show_one_moment(folder: Path) -> None:
    for _ in range(3):
        with opened(DiskStore(folder), "run", Report()) as workspace:
            if not workspace.moment.root.has_plan:
                working(workspace)
            workspace.close("paused")
            moment = workspace.moment
        assert stands_at(folder, "state.json") == stands_at(folder, "todo.md") == moment.seq
        assert (folder / "state.json").read_bytes() == projection.state_file(moment, moment.root)


def test_what_is_no_longer_of_interest_is_removed_unless_it_was_edited(folder: Path) -> None:
    from satchel.workspace.journal import ScopeCommitted

    def run(edit: bool) -> Any:
        with opened(DiskStore(folder), "run", Report()) as workspace:
            working(workspace)
            if edit:
                (folder / "steps/1-a/02-read.json").write_bytes(b"mine")
            workspace.journal.add(ScopeCommitted(scope="1"))
            workspace.close("completed")

    run(edit=True)
    assert [path.name for path in (folder / "steps/1-a").iterdir()] == ["02-read.json"]
