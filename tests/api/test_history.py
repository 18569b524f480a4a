"""`log` and `result` from Python, and a run in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import warm
from cli.conftest import PLAIN, Make
from waits import PATIENCE

import satchel
from satchel.runtime.launch.background import StartOptions
from satchel.runtime.status.place import Place
from satchel.workspace import journal
from satchel.workspace.base.errors import Damaged, UsageError
from satchel.workspace.journal import StepCompleted
from satchel.workspace.store import DiskStore

SLEEPING = """
import asyncio
from pathlib import Path
from satchel import agent

@agent
async def main(run):
    (Path(__file__).parent / "began").touch()
    await asyncio.sleep(1000)
"""


def test_the_log_is_not_the_journal(make: Make) -> None:
    folder = make()
    handle = satchel.open(folder)
    assert list(handle.history.log()) == []
    handle.run()
    rows = list(handle.history.log())
    (first,) = journal.segments(DiskStore(folder))
    path = folder / journal.segment_path(first)
    assert [row.record["seq"] for row in rows] == [json.loads(line)["seq"] for line in path.read_bytes().splitlines()]
    assert {*rows[-1].record} >= {"seq", "commit", "at", "epoch", "prev", "opening", "type"}, "not with all keys"
    assert [row.line.seq for row in rows] == list(range(1, len(rows) + 1))
    assert list(handle.history.log(last=2)) == rows[-2:]
    steps = [row.line.record for row in handle.history.log(type="step.completed", item="^2")]
    assert [bytes(step.result) for step in steps if isinstance(step, StepCompleted)] == [b'"SAY B"']


def test_a_damaged_journal_hides_its_other_records(make: Make) -> None:
    folder = make()
    told: list[str] = []
    handle = satchel.open(folder, tell=told.append)
    handle.run()
    (first,) = journal.segments(DiskStore(folder))
    path = folder / journal.segment_path(first)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"torn')
    count = len(whole.splitlines())
    assert len(list(handle.history.log())) == count and "as after a crash" in told[0]
    rows = whole.splitlines(keepends=True)
    path.write_bytes(b"".join([*rows[:3], b"broken\n", *rows[4:]]))
    found = []
    with pytest.raises(Damaged):
        found.extend(handle.history.log())
    with pytest.raises(UsageError, match="is not a workspace"):
        next(satchel.open(folder.parent).history.log())


def test_a_result_is_not_what_the_run_has_come_to(make: Make) -> None:
    begin = "async def work(run, item):"
    handle = satchel.open(make(PLAIN.replace(begin, f"{begin}\n    run.state[item.id] = 1")))
    new = handle.result
    assert (new.status, new.state, new.outputs, new.items) == ("new", None, {}, (0, 0))
    handle.run()
    result = handle.result
    assert (result.status, result.state, result.items) == ("completed", {"1": 1, "2": 1}, (2, 2))
    assert sorted(result.outputs) == ["outputs/1.txt", "outputs/2.txt"] and result.failure is None


def test_a_failure_is_not_in_the_result(make: Make) -> None:
    handle = satchel.open(
        make("from satchel import agent\n\n@agent\nasync def main(run):\n    raise ValueError('no')\n")
    )
    handle.run()
    failure = handle.result.failure
    assert failure and (failure.kind, failure.message) == ("ValueError", "no")


def test_a_process_is_started_otherwise_than_was_said(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make()
    monkeypatch.chdir(folder.parent)
    place = Place(DiskStore("demo"), "demo")
    start = StartOptions(
        resume=True,
        accept_drift=True,
        drain_timeout=3.0,
        from_checkpoint=True,
        take_over=True,
        adopt=True,
        shown=["--quiet"],
    )
    assert start.words(place) == [
        "resume",
        "--quiet",
        "--accept-drift",
        "--from-checkpoint",
        "--take-over",
        "--adopt",
        "--drain-timeout",
        "3.0",
        "--",
        "demo",
    ]
    here = Place(DiskStore("demo"), "")
    assert StartOptions(from_checkpoint=True).words(here) == ["run", "--", str(folder)]
    monkeypatch.chdir(folder)
    assert StartOptions().words(here) == ["run"]
    assert StartOptions().words(place) == ["run", "--", str(folder)]


@pytest.fixture
def is_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", warm.Popen)


@pytest.mark.usefixtures("is_warm")
def test_a_supervised_run_is_not_run(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    handle = satchel.open(make())
    ended = handle.supervise(options=["--quiet"])
    assert (ended.exit_code, ended.status, ended.why) == (0, "completed", "")
    assert handle.result.status == "completed" and "completed" in capfd.readouterr().out


@pytest.mark.usefixtures("is_warm")
def test_one_of_several_runs_can_not_be_supervised_in_a_thread(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    """It stops once it is told to, writes to its own log, and says why it was refused."""
    handle = satchel.open(make(SLEEPING))
    with ThreadPoolExecutor() as pool:
        running = pool.submit(handle.supervise, should_stop=lambda: os.path.exists(f"{handle.url}/began"))
        assert running.result().status == "paused"
    assert handle.status().moment.pause.reason == "signal" and capfd.readouterr().out == ""
    assert "paused by a signal" in Path(handle.url, ".satchel/run.log").read_text()
    Path(handle.url, "agent.py").unlink()
    ended = handle.supervise(should_stop=lambda: False)
    assert ended.exit_code == 2 and "agent.py" in ended.why


@pytest.mark.usefixtures("is_warm")
def test_a_run_in_the_background_is_not_told(make: Make) -> None:
    handle = satchel.open(make())
    started = handle.detach()
    assert started.log == os.path.join(handle.url, ".satchel/run.log")
    assert started.exit_code in (None, 0)
    assert handle.wait().status == "completed"


@pytest.mark.usefixtures("is_warm")
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="only /proc tells of processes that wait for their parent")
def test_a_program_keeps_the_dead_supervisors_of_its_runs(make: Make) -> None:
    started = satchel.open(make()).detach()
    deadline = time.monotonic() + PATIENCE
    while os.path.exists(f"/proc/{started.pid}"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
