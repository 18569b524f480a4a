"""The slots of `serve`: who has one, who gives it up, who comes next, and who is named because it keeps it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import warm

from satchel import Run, agent, run, step
from satchel.runtime.execution import ask
from satchel.runtime.live import supervisor_link
from satchel.runtime.supervision import sharing
from satchel.runtime.supervision.supervisor import Policy
from satchel.workspace.inspect import lease

from . import supervised
from .serve_in_process import Served
from .supervised import BLOCKING, BUSY, WAITING, make, seen, wait_until
from .test_schedule import Clock, clock
from .test_serving import QUICK

__all__ = ["clock"]

ASKING = """
from satchel import agent

@agent
async def main(run):
    assert await run.ask("Go on?", choices=["yes"], wait_for=1000)
"""

Serve = Callable[..., Served]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def serve(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    monkeypatch.setattr(subprocess, "Popen", warm.Popen)
    monkeypatch.setenv("SEEN", str(root.parent / "seen"))
    started: list[Served] = []

    def start(at_most: int = 1, group_limits: dict[str, int] | None = None, **policy: float) -> Served:
        limits = Policy(**policy)  # type: ignore[arg-type]
        started.append(Served(root, at_most, limits, group_limits=group_limits))
        return started[-1]

    yield start
    for served in started:
        served.end()


def test_a_run_that_waits_for_an_answer_keeps_its_slot(root: Path, serve: Serve) -> None:
    make(root / "a", ASKING)
    make(root / "b", QUICK)
    served = serve()
    assert served.until_event("waiting", "a") == "a1: Go on?"
    served.until_event("completed", "b")


def test_a_question_stops_what_is_at_work_beside_it(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_link, "_shares_slots", True)
    done: list[int] = []

    @step
    async def work(number: int) -> None:
        await asyncio.sleep(0.3)
        done.append(number)

    @agent
    async def main(run: Run) -> None:
        async def all_of_it() -> None:
            for number in range(3):
                await work(number)

        await asyncio.gather(run.ask("Go on?", wait_for=1000), all_of_it())

    assert run(workspace, main).status == "waiting"
    assert done == [0, 1, 2]


def test_a_moment_between_two_steps_counts_as_no_work(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_link, "_shares_slots", True)
    monkeypatch.setattr(ask, "_QUIET", 0.3)
    done: list[int] = []

    @step
    async def work(number: int) -> None:
        await asyncio.sleep(0.35)
        done.append(number)

    @agent
    async def main(run: Run) -> None:
        async def all_of_it() -> None:
            for number in range(6):
                await work(number)
                await asyncio.sleep(0.1)

        await asyncio.gather(run.ask("Go on?", wait_for=1000), all_of_it())

    assert run(workspace, main).status == "waiting"
    assert done == [*range(6)]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make(tmp_path / "a", "")


def test_a_short_pause_keeps_its_slot(root: Path, serve: Serve) -> None:
    make(root / "a", WAITING, "idle_below: 10h\n")
    make(root / "b", QUICK)
    served = serve()
    served.until(lambda: (root.parent / "seen").exists())
    (root / "a/pause.yaml").write_text("expected_until: 2100-01-01T00:00:00Z\n")
    (root / "a/workspace.yaml").write_text((root / "a/workspace.yaml").read_text().replace("10h", "500000h"))
    served.until_event("paused", "a")
    served.until_event("completed", "b")


SENDING = f"""
import satchel.runtime.live.notices as notices
notices.AT_THE_END = notices.LIMIT = notices._PATIENCE = 1000.0
notices.PAUSES = ()
{QUICK}"""


def test_a_run_keeps_its_slot_while_its_notice_is_not_taken(
    root: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "whsec_c2VzYW1l")
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        make(root / "a", SENDING, f"notify: [{{webhook: '{url}', secret: '${{KEY}}'}}]\n")
        make(root / "b", QUICK)
        served = serve()
        served.until_event("started", "b")
        assert ("completed", "a") not in served.kinds
    assert served.until_event("completed", "a").startswith("1 of 1")


def test_more_of_a_group_run_than_may_or_other_runs_wait_for_it(root: Path, serve: Serve) -> None:
    for name in ("a1", "a2"):
        make(root / name, WAITING, "group: customer-a\n")
    make(root / "b", WAITING, "group: customer-b\n")
    make(root / "c", QUICK)
    served = serve(4, {"customer-a": 1, "*": 2})
    served.until_event("completed", "c")
    served.until(lambda: len(seen(root.parent)) == 2)
    served.turn()
    names = {os.path.basename(child.store.url) for child in served.server.running}
    assert names in ({"a1", "b"}, {"a2", "b"})
    (first,) = names - {"b"}
    (root / first / "pause.yaml").touch()
    served.until_event("paused", first)
    served.until_event("started", ({"a1", "a2"} - {first}).pop())


def test_a_run_of_a_group_that_another_process_has_does_not_count(root: Path, serve: Serve) -> None:
    folders = [make(root / name, WAITING, "group: customer-a\n") for name in ("a1", "a2")]
    with supervised.satchel(root.parent, "run", "--in-process", folders[0]) as other:
        wait_until(lambda: seen(root.parent), other)
        served = serve(4, {"customer-a": 1})
        served.turn()
        make(root / "b", QUICK)
        served.until_event("completed", "b")
        assert not served.server.running
        other.kill()
        other.communicate()
    served.until(lambda: len(seen(root.parent)) == 2)


def test_a_higher_priority_comes_later_or_a_changed_one_does_not_count(root: Path, serve: Serve) -> None:
    for name, priority in (("a", 0), ("b", 10), ("c", -3), ("d", 1)):
        make(root / name, QUICK, f"priority: {priority}\n")
    make(root / "first", WAITING, "priority: 1000\n")
    served = serve()
    served.until(lambda: seen(root.parent))
    (root / "c/workspace.yaml").write_text((root / "c/workspace.yaml").read_text().replace("-3", "30"))
    served.turn()
    (root / "first/pause.yaml").touch()
    served.until(lambda: sum(kind == "completed" for kind, _ in served.kinds) == 4)
    started = [name for kind, name in served.kinds if kind == "started"]
    assert started == ["first", "c", "b", "a", "d"], "the fourth start is of the one that has waited longest"


def test_two_workspaces_of_one_run_id_are_not_named_or_at_every_look(root: Path, serve: Serve) -> None:
    for name in ("a", "b"):
        folder = make(root / name, QUICK)
        (folder / "workspace.yaml").write_text("format: 1\nrun_id: same\nagent: agent.py:main\n")
        (folder / "pause.yaml").touch()
    served = serve()
    assert f"have the run_id same: {root / 'a'}, {root / 'b'}. " in served.until_event("warned", "a")
    served.turn()
    assert served.events == []


def test_a_run_that_is_deaf_is_not_named_or_all_the_time(root: Path, serve: Serve) -> None:
    make(root / "a", BLOCKING)
    served = serve(silent=0.5)
    said = served.until_event("late", "a")
    assert "has been silent for" in said and "can't react to a pause" in said
    (supervisor,) = served.server.running
    for _ in range(3):
        supervisor._glance = 0.0
        supervisor.poll()
    assert served.events == []


def test_a_run_whose_loop_turns_is_taken_for_deaf(root: Path, serve: Serve) -> None:
    make(root / "a", "import satchel.runtime.live.supervisor_link as uplink; uplink._EVERY = 0.05\n" + WAITING)
    served = serve()
    heard: set[float] = set()

    def is_heard_again() -> bool:
        heard.update(supervisor._child._heard for supervisor in served.server.running if supervisor._child)
        return len(heard - {0.0}) > 3

    served.until(is_heard_again)
    (supervisor,) = served.server.running
    assert supervisor._child is not None
    assert supervisor._child.silent_for(max(heard) + 2.0) == pytest.approx(2.0)


def test_a_stop_that_nothing_enforces_is_not_named(root: Path, serve: Serve) -> None:
    folder = make(root / "a", BUSY, "drain: {timeout: 0.2s, then: extend}\n")
    served = serve()
    served.until(lambda: (root.parent / "seen").exists())
    (folder / "pause.yaml").write_text("")
    assert "has not stopped" in served.until_event("late", "a")


def test_a_kill_for_a_stop_that_takes_too_long_looks_like_a_crash(root: Path, serve: Serve) -> None:
    folder = make(root / "a", BLOCKING, "drain: {timeout: 0.1s}\n")
    served = serve(grace=0.1)
    served.until(lambda: (root.parent / "seen").exists())
    (folder / "pause.yaml").write_text("")
    assert "did not stop in time" in served.until_event("late", "a")
    served.until_event("paused", "a")


def test_after_a_restart_the_same_ones_come_first(
    root: Path, serve: Serve, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they are called: who has had no process for longest is first, a new one since it was made."""

    class Killed(BaseException):
        pass

    @agent
    async def dying(run: Run) -> None:
        raise Killed

    for name, day in (("a", 24), ("b", 22), ("c", 20)):
        folder = make(root / name, QUICK)
        clock.at(day, 0)
        with pytest.raises(Killed):
            run(folder, dying)
        (folder / lease.PATH).unlink()  # it names this very process
    for name, day in (("d", 21), ("e", 19), ("f", 100)):
        folder = make(root / name, QUICK)
        at = clock.at(day, 0).timestamp() if day < 30 else clock.now.timestamp() + 1e9
        os.utime(folder / "workspace.yaml", (at, at))
    monkeypatch.undo()
    monkeypatch.setattr(subprocess, "Popen", warm.Popen)
    served = serve()
    served.until(lambda: sum(kind == "completed" for kind, _ in served.kinds) == 6)
    started = [name for kind, name in served.kinds if kind == "started"]
    assert [name for name in started if name != "f"] == ["e", "c", "d", "b", "a"]


def test_a_container_s_share_of_the_cores_is_not_heeded(tmp_path: Path) -> None:
    groups, own = tmp_path / "cgroup", tmp_path / "own"
    (groups / "pods/one").mkdir(parents=True)
    own.write_text("1:name=systemd:/other\n0::/pods/one\n")

    def quota() -> float | None:
        return sharing._quota(str(groups), str(own))

    assert quota() is None
    (groups / "pods/one/cpu.max").write_text("max 100000\n")
    assert quota() is None
    (groups / "pods/cpu.max").write_text("150000 100000\n")
    assert quota() == 1.5
    (groups / "pods/one/cpu.max").write_text("50000 100000\n")
    assert quota() == 0.5
    own.write_text("no group at all\n")
    assert quota() is None
    assert 1 <= sharing.usable_cores() <= (os.cpu_count() or 1)


def test_a_small_container_on_many_cores_leaves_no_memory_to_a_shared_process() -> None:
    assert sharing.shared_by_processes(64, 1 << 30) == (1, 512 << 20)
    assert sharing.shared_by_processes(64, 128 << 20) == (1, 64 << 20)
    assert sharing.shared_by_processes(64, 8 << 30) == (8, 512 << 20)
    assert sharing.shared_by_processes(2, 8 << 30) == (2, 2 << 30)
    assert sharing.shared_by_processes(4, 0) == (4, 0)
