"""`serve`: what it starts, what it leaves alone, how many at a time, and how it ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TextIO
from unittest import mock

import pytest
import warm
from msgspec.structs import replace

import satchel
from satchel import Run, agent
from satchel.runtime.supervision.known_run import StartVerdict, judge
from satchel.runtime.supervision.roots import FolderRoot, Root, UrlRoot
from satchel.runtime.supervision.run_server import Server
from satchel.runtime.supervision.supervisor import Supervisor
from satchel.workspace.base import SIGNAL
from satchel.workspace.base.errors import Conflicting, SatchelError, StorageFailed
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import PauseRequested
from satchel.workspace.lifecycle import pausing
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore
from satchel.workspace.views.guarded_files import Unsettled

from . import supervised
from .supervised import BLOCKING, WAITING, journal, seen, wait_until

Served = Callable[..., subprocess.Popen[str]]

said: dict[int, TextIO] = {}
"""What each `serve` says, as far as it has not been read yet."""

QUICK = """
from satchel import agent

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["a"])
    await run.todo.each(work)

async def work(run, item):
    run.state["done"] = True
"""
ASKING = """
from satchel import agent, effect

@effect
def send(text):
    raise TimeoutError("no answer")

@agent
async def main(run):
    await send("a")
"""
SLEEPING = "import satchel.runtime.execution.own_steps as own_steps; own_steps._IN_PROCESS = 0.1\n" + QUICK.replace(
    'run.state["done"] = True', "await run.sleep(SECONDS)"
)
FAILING = QUICK.replace('run.state["done"] = True', "raise KeyError('x')")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def served(root: Path) -> Iterator[Served]:
    processes: list[subprocess.Popen[str]] = []

    def start(*options: object, is_cold: bool = False) -> subprocess.Popen[str]:
        root.mkdir(exist_ok=True)
        path = root.parent / f"said-{len(processes)}"
        with path.open("w") as output:
            process = (subprocess.Popen if is_cold else warm.Popen)(
                [sys.executable, "-m", "satchel", "serve", "--json", *map(str, options), root],
                cwd=root,
                text=True,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        said[process.pid] = path.open()
        processes.append(process)
        return process

    yield start
    supervised.clean_up([path.parent for path in root.glob("*/workspace.yaml")], processes)
    for process in processes:
        said.pop(process.pid).close()


def make(folder: Path, source: str, extra: str = "") -> Path:
    """A workspace whose agent notes its processes in it, whoever starts it."""
    return supervised.make(folder, source.replace('os.environ.get("SEEN", "seen")', repr(str(folder / "seen"))), extra)


def events(process: subprocess.Popen[str]) -> list[tuple[str, str, str]]:
    """All events that are left, until its end: kind, folder's name, text."""
    process.wait(supervised.PATIENCE)
    lines = said[process.pid].read().splitlines()
    assert all(line.startswith("{") for line in lines), lines
    rows = [json.loads(line) for line in lines]
    return [(row["event"], os.path.basename(row["folder"]), row["text"]) for row in rows]


def kinds(process: subprocess.Popen[str]) -> list[tuple[str, str]]:
    return [(kind, name) for kind, name, _ in events(process)]


def next_event(process: subprocess.Popen[str]) -> tuple[str, str]:
    line = ""

    def is_there() -> bool:
        nonlocal line
        line += said[process.pid].readline()
        return line.endswith("\n")

    wait_until(is_there, process)
    row = json.loads(line)
    return row["event"], os.path.basename(row["folder"])


def status_of(folder: Path) -> str:
    try:
        return str(json.loads((folder / "state.json").read_text())["status"])
    except FileNotFoundError:
        return "new"


def test_what_is_new_is_not_run_or_what_is_done_is_run_again(root: Path, served: Served) -> None:
    for name in ("a", "b", "deep/c"):
        make(root / name, QUICK)
    found = kinds(served("--once", "--at-most", 1))
    assert found == [(kind, name) for name in "abc" for kind in ("started", "completed")]
    assert kinds(served("--once")) == []


def test_more_run_than_may_or_a_later_one_comes_first(root: Path, served: Served) -> None:
    for name in "abc":
        make(root / name, WAITING)
    process = served("--at-most", 2)
    wait_until(lambda: seen(root / "a") and seen(root / "b"), process)
    os.kill(seen(root / "a")[0], signal.SIGTERM)  # it pauses, and its place is free
    wait_until(lambda: seen(root / "c"), process)
    assert len(seen(root / "a")) == len(seen(root / "b")) == 1
    process.send_signal(signal.SIGTERM)
    found = kinds(process)
    assert process.returncode == 0
    assert found[:4] == [("started", "a"), ("started", "b"), ("paused", "a"), ("started", "c")]
    assert sorted(found[4:]) == [("paused", "b"), ("paused", "c")]


def test_several_of_one_root_start_each_run_once_for_each_of_them(root: Path, served: Served) -> None:
    names = [f"r{number:02}" for number in range(12)]
    for name in names:
        make(root / name, QUICK)
    found = [event for process in [served("--once", "--at-most", 4) for _ in range(3)] for event in kinds(process)]
    starts = [name for kind, name in found if kind == "started"]
    assert {*starts} == {*names} and len(starts) <= 1.1 * len(names), starts
    assert sorted(name for kind, name in found if kind == "completed") == names


def test_a_restart_of_serve_leaves_runs_paused(root: Path, served: Served) -> None:
    folder = make(root / "a", WAITING)
    process = served()
    wait_until(lambda: seen(folder), process)
    process.send_signal(signal.SIGTERM)
    assert kinds(process)[-1] == ("paused", "a")
    process = served()
    wait_until(lambda: len(seen(folder)) == 2, process)


ENDING_SLOWLY = WAITING.replace(
    "await asyncio.sleep(1000)",
    """async with run.uninterrupted("end"):
        while not pathlib.Path(os.environ.get("SEEN", "seen") + "-go").exists():
            await asyncio.sleep(0.01)
    await asyncio.sleep(1000)""",
)


def test_a_run_that_outlives_its_serve_stays_paused_under_the_next(root: Path, served: Served) -> None:
    """`serve` was killed, and its run, which is told to stop by that, still stops when the next `serve` begins."""
    folder = make(root / "a", ENDING_SLOWLY)
    process = served()
    wait_until(lambda: seen(folder), process)
    process.kill()
    process.wait()
    make(root / "b", QUICK)
    process = served()
    assert [next_event(process), next_event(process)] == [("started", "b"), ("completed", "b")]
    (folder / "seen-go").touch()
    wait_until(lambda: len(seen(folder)) == 2, process)


@pytest.mark.parametrize(
    "error", [StorageFailed("can't be read", path="journal"), Unsettled("pause.yaml", is_open=True)]
)
def test_a_run_that_can_not_be_judged_when_serve_begins_stays_paused(
    root: Path, monkeypatch: pytest.MonkeyPatch, error: SatchelError
) -> None:
    stopped_by_signal(root / "a")
    server = Server(str(root), 1, lambda event: None)
    with monkeypatch.context() as broken:
        broken.setattr(pausing, "wish", mock.Mock(side_effect=error))
        server._lookout.look()
    (known,) = server._known
    assert not known.due_since
    server._lookout.look()
    assert known.due_since


@pytest.mark.parametrize(("code", "is_due"), [(8, True), (2, True), (6, True), (3, False), (1, False)])
def test_a_run_whose_first_start_comes_to_nothing_stays_paused(root: Path, code: int, is_due: bool) -> None:
    """Nothing has gone on with it yet: the storage failed, it was refused, or another `serve` still has it."""
    folder = stopped_by_signal(root / "a")
    server = Server(str(root), 1, lambda event: None)
    server._lookout.look()
    (known,) = server._known
    known.supervisor = mock.Mock(spec=Supervisor, code=code, why="", error="so it is")
    server._poll(known)
    (folder / "agent.py").write_text(QUICK + "\n")
    server._lookout.look()
    assert bool(known.due_since) == is_due


def test_a_run_that_a_person_has_stopped_is_started(root: Path, served: Served) -> None:
    folder = make(root / "a", WAITING)
    run = supervised.satchel(folder, "run", folder)
    wait_until(lambda: seen(folder), run)
    make(root / "b", QUICK)
    process = served()
    assert [next_event(process), next_event(process)] == [("started", "b"), ("completed", "b")]
    run.send_signal(signal.SIGINT)
    run.communicate()
    make(root / "c", QUICK)
    assert [next_event(process), next_event(process)] == [("started", "c"), ("completed", "c")]
    process.send_signal(signal.SIGINT)
    assert kinds(process) == [] and len(seen(folder)) == 1


def test_what_fails_is_tried_for_ever(root: Path, served: Served) -> None:
    folder = make(root / "a", FAILING)
    process = served()
    assert [next_event(process), next_event(process)] == [("started", "a"), ("failed", "a")]
    make(root / "b", QUICK)
    assert [next_event(process), next_event(process)] == [("started", "b"), ("completed", "b")]
    assert sum(record["type"] == "opened" for record in journal(folder)) == 1


def test_what_is_refused_is_not_tried_once_it_was_mended(root: Path, served: Served) -> None:
    folder = make(root / "a", "x = 1\n")
    process = served()
    assert [next_event(process), next_event(process)] == [("started", "a"), ("refused", "a")]
    (folder / "agent.py").write_text(QUICK)
    assert [next_event(process), next_event(process)] == [("started", "a"), ("completed", "a")]


def test_a_new_folder_or_a_typed_resume_is_not_noticed(root: Path, served: Served) -> None:
    stopped = make(root / "a", QUICK)
    (stopped / "pause.yaml").write_text("reason: mine\n")
    process = served()
    make(root / "b", QUICK)
    assert [next_event(process), next_event(process)] == [("started", "b"), ("completed", "b")]
    assert status_of(stopped) == "new"
    (stopped / "pause.yaml").write_text("reason: mine\nstatus: resume\n")
    assert [next_event(process), next_event(process)] == [("started", "a"), ("completed", "a")]


@pytest.mark.parametrize("kind", [FolderRoot, lambda root: UrlRoot(DiskStore(root))])
def test_new_work_for_a_sub_agent_is_not_noticed(root: Path, kind: Callable[[str], Root]) -> None:
    @agent
    async def helper(run: Run) -> None:
        await run.plan(None, ["one"])
        await run.todo.each(lambda run, item: None)

    @agent
    async def main(run: Run) -> None:
        await run.spawn(helper, "first")

    outcome = satchel.run(make(root / "a", QUICK), main)
    assert outcome.status == "completed", outcome.error
    todo = root / "a/agents/first/todo.md"
    looked_at = kind(str(root))
    ((_, folder),) = looked_at.folders()
    before = looked_at.signature(folder)
    todo.write_text(todo.read_text() + "- [ ] one more\n")
    assert judge(DiskStore(root / "a"), datetime.now(UTC)).starts
    looked_at.refresh([folder])
    assert looked_at.signature(folder) != before


def test_an_unanswered_question_is_run_into_or_its_answer_not_noticed(root: Path, served: Served) -> None:
    folder = make(root / "a", ASKING)
    process = served()
    assert [next_event(process), next_event(process)] == [("started", "a"), ("waiting", "a")]
    make(root / "b", QUICK)
    assert [next_event(process), next_event(process)] == [("started", "b"), ("completed", "b")]
    supervised.satchel(folder, "answer", folder, "d1", "done").communicate()
    assert [next_event(process), next_event(process)] == [("started", "a"), ("completed", "a")]


@pytest.mark.slow
def test_of_many_runs_that_are_answered_at_once_some_start_twice_or_never(root: Path, served: Served) -> None:
    source = f"""
from satchel import agent, effect

@effect
async def publish(name):
    with open({str(root.parent / "published")!r}, "a") as file:
        file.write(name + "\\n")

@agent
async def main(run):
    await run.ask("Publish it?", choices=["yes"], wait_for=0)
    await publish(run.folder)
"""
    folders = [make(root / f"{number}", source) for number in range(100)]
    assert {satchel.run(folder).status for folder in folders} == {"waiting"}
    make(root / "first", QUICK)
    process = served()
    assert [next_event(process), next_event(process)] == [("started", "first"), ("completed", "first")]
    process.send_signal(signal.SIGSTOP)
    for folder in folders:
        satchel.open(folder).answer("yes")
    process.send_signal(signal.SIGCONT)
    done = [next_event(process) for _ in range(200)]
    process.send_signal(signal.SIGTERM)
    assert kinds(process) == []
    assert sorted(done) == sorted((kind, folder.name) for folder in folders for kind in ("started", "completed"))
    assert sorted((root.parent / "published").read_text().split()) == sorted(map(str, folders))
    opened = [[each["why"] for each in journal(folder) if each["type"] == "opened"] for folder in folders]
    assert opened == [["run", "answer", "run"]] * 100


def test_a_contradiction_is_run_into_again_and_again(root: Path) -> None:
    """`status: resume` lets it go on, and each start finds the same file that contradicts the run."""
    source = QUICK.replace('["a"]', '["a", "b"]') + (
        "    if run.attempt == 1:\n        raise KeyError('x')\n"
        "    if item.text == 'b':\n        await run.pause('a look')\n"
    )
    folder = make(root / "a", source)
    assert satchel.run(folder).status == "failed"
    old = (folder / "todo.md").read_text()
    assert satchel.run(folder).status == "paused"
    (folder / "todo.md").write_text(old.replace("[/] a", "[-] a"))
    (folder / "pause.yaml").write_text("status: resume\n")
    server = Server(str(root), 1, lambda event: None)
    server._lookout.look()
    (known,) = server._known
    assert known.due_since
    with pytest.raises(Conflicting):
        satchel.run(folder)
    known.supervisor = mock.Mock(spec=Supervisor, code=4, why="", error="so it is")
    server._poll(known)
    server._lookout.look()
    assert not known.due_since
    (folder / "todo.md").write_text(old)
    server._lookout.look()
    assert known.due_since


def test_a_sleeper_is_woken_early_or_never(root: Path, served: Served) -> None:
    folder = make(root / "a", SLEEPING.replace("SECONDS", "1.5"))
    make(root / "b", SLEEPING.replace("SECONDS", "3600"))
    process = served()
    found = [next_event(process) for _ in range(6)]
    assert sorted(found[:4]) == [("sleeping", "a"), ("sleeping", "b"), ("started", "a"), ("started", "b")]
    assert found[4:] == [("started", "a"), ("completed", "a")]
    assert sum(record["type"] == "opened" for record in journal(folder)) == 2


def test_a_crashed_run_is_left(root: Path, served: Served) -> None:
    folder = make(root / "a", WAITING)
    run = supervised.satchel(folder, "run", "--in-process", folder)
    wait_until(lambda: seen(folder), run)
    run.kill()
    run.communicate()
    process = served()
    wait_until(lambda: len(seen(folder)) == 2, process)


def test_a_run_of_somebody_else_is_started_beside_it_or_not_taken_over(root: Path, served: Served) -> None:
    folder = make(root / "a", WAITING)
    run = supervised.satchel(folder, "run", "--in-process", folder)
    wait_until(lambda: seen(folder), run)
    process = served()
    make(root / "b", QUICK)
    assert [next_event(process), next_event(process)] == [("started", "b"), ("completed", "b")]
    run.kill()  # which changes no file
    run.communicate()
    wait_until(lambda: len(seen(folder)) == 2, process)


def test_a_damaged_workspace_ends_it_or_is_complained_of_again_and_again(root: Path, served: Served) -> None:
    bad = make(root / "a", QUICK)
    (bad / "workspace.yaml").write_text("format: [")
    make(root / "b", QUICK)
    process = served()
    assert [next_event(process) for _ in range(3)] == [("damaged", "a"), ("started", "b"), ("completed", "b")]
    make(root / "c", QUICK)
    assert [next_event(process), next_event(process)] == [("started", "c"), ("completed", "c")]


def test_a_folder_that_is_removed_under_it_ends_it(root: Path, served: Served) -> None:
    folder = make(root / "a", WAITING)
    process = served()
    wait_until(lambda: seen(folder), process)
    child = seen(folder)[0]
    folder.rename(root.parent / "gone")
    os.kill(child, signal.SIGKILL)
    make(root / "b", QUICK)
    wait_until(lambda: status_of(root / "b") == "completed", process)


def test_stop_does_not_reach_what_serve_runs_or_ends_serve(root: Path, served: Served) -> None:
    first, second = make(root / "a", BLOCKING), make(root / "b", WAITING)
    process = served("--at-most", 2)
    wait_until(lambda: seen(first) and seen(second), process)
    stopped, _ = supervised.satchel(first, "stop", first).communicate()
    assert not supervised.is_alive(seen(first)[0]), stopped
    make(root / "c", QUICK)
    wait_until(lambda: status_of(root / "c") == "completed", process)
    assert supervised.is_alive(seen(second)[0]) and len(seen(first)) == 1


def test_a_second_ctrl_c_waits_for_blocked_agents(root: Path, served: Served) -> None:
    folder = make(root / "a", BLOCKING)
    process = served()
    wait_until(lambda: seen(folder), process)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGINT)
    assert kinds(process)[-1] == ("paused", "a") and process.returncode == 0


def test_serve_runs_code_of_an_agent(root: Path, served: Served) -> None:
    note = f"import os, pathlib\npathlib.Path({str(root / 'seen')!r}).write_text(str(os.getpid()))\n"
    folder = make(root / "a", note + QUICK)
    process = served(is_cold=True)
    assert [next_event(process), next_event(process)] == [("started", "a"), ("completed", "a")]
    assert int((root / "seen").read_text()) != process.pid
    assert "completed" in (folder / ".satchel/run.log").read_text()


def stopped_by_signal(folder: Path) -> Path:
    with opened(DiskStore(make(folder, QUICK)), "run", Report()) as workspace:
        workspace.journal.add(PauseRequested(reason=SIGNAL, by="SIGTERM"))
        pausing.settle(workspace)
        workspace.close("paused", SIGNAL)
    return folder


def begun(folder: Path) -> Path:
    """A run that waits for an answer to d1."""
    assert satchel.run(make(folder, ASKING)).status == "waiting"
    return folder


NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("pause", "expected"),
    [
        ("", False),
        ("status: paused\n", False),
        ("status: 'resume'\n", True),
        ("expected_until: 2026-11-22T11:59:00Z\n", True),
        ("expected_until: 2026-11-22T11:59:00Z\nmode: emergency\n", False),
        ("x-status: resume\n", False),
    ],
)
def test_a_pause_file_is_misread(tmp_path: Path, pause: str, expected: bool) -> None:
    folder = begun(tmp_path / "a")
    (folder / "pause.yaml").write_text(pause)
    found = judge(DiskStore(folder), NOW)
    assert found.starts == expected and found.at is None


def judged(folder: Path, at: datetime) -> StartVerdict:
    """Without what the folder's own files say of the run."""
    return replace(judge(DiskStore(folder), at), run_id="", definition=None, opening="", rested=None, figures=None)


def test_the_end_of_a_pause_is_not_waited_for(tmp_path: Path) -> None:
    folder = begun(tmp_path / "a")
    (folder / "pause.yaml").write_text("expected_until: 2026-11-22T12:30:00+00:00\n")
    assert judged(folder, NOW) == StartVerdict(True, NOW + timedelta(minutes=30), "its pause is over")


def test_a_schedule_is_not_waited_for(tmp_path: Path) -> None:
    """By a run that has failed: of any other a task in its inbox tells."""
    folder = make(tmp_path / "a", FAILING, "schedule: [{cron: '0 9 * * *'}]\n")
    assert satchel.run(folder).status == "failed"
    now = datetime.now(UTC)
    found = judge(DiskStore(folder), now)
    assert found.starts and found.at and now < found.at <= now + timedelta(days=1) and found.at.hour == 9
    later = found.at + timedelta(days=1)
    assert judged(folder, later) == StartVerdict(True, None, "its schedule", by_clock=True)  # nobody looked
    assert judge(DiskStore(folder), later, tried=later).at == later + timedelta(days=1)
    assert judge(DiskStore(folder), now - timedelta(days=400)).at is None, "the clock of the start ran ahead"


def test_a_failed_run_whose_journal_is_gone_can_not_be_judged(tmp_path: Path) -> None:
    """state.json says that it has failed, and nothing says when: only the next time of its schedule starts it."""
    folder = make(tmp_path / "a", FAILING)
    assert satchel.run(folder).status == "failed"
    shutil.rmtree(folder / "journal")
    shutil.rmtree(folder / "checkpoints")
    assert judged(folder, NOW) == StartVerdict(False)
    with (folder / "workspace.yaml").open("a") as file:
        file.write("schedule: [{cron: '0 9 * * *', timezone: UTC}]\n")
    assert judge(DiskStore(folder), NOW).at == datetime(2026, 11, 23, 9, tzinfo=UTC)


def test_a_start_of_the_schedule_is_missed_or_made_twice(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that completes, one that fails, and one that is refused; the clock is the test's."""
    monkeypatch.setattr(subprocess, "Popen", warm.Popen)
    done = make(root / "a", QUICK, "schedule: [{cron: '0 9 * * *', wait: true}]\n")
    make(root / "b", FAILING, "schedule: [{cron: '0 9 * * *', wait: true}]\n")
    make(root / "c", "x = 1\n", "schedule: [{cron: '0 9 * * *', wait: true}]\n")
    # The agents date their records by the real clock, and the test's clock has to be ahead of it on any day.
    noon = (datetime.now(UTC) + timedelta(days=1)).replace(hour=12, minute=0, second=0, microsecond=0)
    for name in "abc":
        os.utime(root / name / "workspace.yaml", (noon.timestamp(), noon.timestamp()))
    now, told = noon, list[tuple[str, str]]()
    server = Server(
        str(root), 3, lambda event: told.append((event.kind, os.path.basename(event.folder))), clock=lambda: now
    )

    def turns() -> list[tuple[str, str]]:
        """What it does until nothing is left to do, and in another look after that."""
        told.clear()
        for _ in range(2):
            server._lookout.looked_at = float("-inf")
            server.turn()
            assert server._thread is not None
            server._thread.join()  # the look
            server.turn()
            while server.running:
                assert len(told) < 20, "it is started again and again"
                for supervisor in server.running:
                    child = supervisor._child
                    assert child is not None
                    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
                server.turn()
        return sorted(told)

    started = [("completed", "a"), ("failed", "b"), ("refused", "c"), *(("started", name) for name in "abc")]
    assert turns() == []
    now = noon + timedelta(days=1)
    assert turns() == started
    assert status_of(done) == "completed"
    now += timedelta(hours=20)
    assert turns() == []
    now += timedelta(hours=4)
    assert turns() == [each for each in started if each[1] != "c"]  # of that one a file has to change first


def test_damage_is_no_error(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", QUICK)
    (folder / "workspace.yaml").write_text("format: 99\n")
    with pytest.raises(SatchelError):
        judge(DiskStore(folder), NOW)


@pytest.mark.parametrize(
    ("old", "new", "is_answer"),
    [
        ("", "", False),
        ("decision:", "decision: null  # not yet", False),
        ("note:", "note: I ask ada", False),
        ("decision:", "decision: done", True),
        ("decision:", '"decision": done', True),
        ("decision:", "decision:\n  done", True),
        ("decision:", "? decision\n: done", True),
        ("decision:", "decision: don", True),  # the next start says beside it what is wrong
    ],
)
def test_an_answer_is_seen_where_there_is_none_or_not_seen(tmp_path: Path, old: str, new: str, is_answer: bool) -> None:
    folder = begun(tmp_path / "a")
    file = folder / "approvals/d1.yaml"
    file.write_text(re.sub(f"(?m)^{old}$", new, file.read_text(), count=1) if old else file.read_text())
    assert judge(DiskStore(folder), NOW).starts == is_answer


def test_an_answer_that_was_refused_is_tried_again_and_again(tmp_path: Path) -> None:
    folder = begun(tmp_path / "a")
    file = folder / "approvals/d1.yaml"
    file.write_text(file.read_text().replace("\ndecision:\n", "\ndecision: don\n"))
    assert satchel.run(folder).status == "waiting" and "# not accepted: " in file.read_text()
    assert not judge(DiskStore(folder), NOW).starts
