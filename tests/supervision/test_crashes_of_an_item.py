"""An item that ends its process: its crashes are counted in the journal, whoever starts the run again."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import warm

from satchel.runtime.supervision.supervisor import Policy
from satchel.workspace.base import StorageFailed
from satchel.workspace.inspect import Report, look
from satchel.workspace.lifecycle import opened, recovery
from satchel.workspace.state import Moment
from satchel.workspace.store import DiskStore

from . import supervised
from .serve_in_process import Served
from .supervised import seen, wait_until

Start = Callable[..., subprocess.Popen[str]]

ITEMS = """
import asyncio, os, pathlib, signal
from satchel import agent, effect, step

def seen():
    pathlib.Path(os.environ.get("SEEN", "seen")).open("a").write(f"{os.getpid()}\\n")

def die():
    os.kill(os.getpid(), signal.SIGKILL)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["deadly", "harmless"])
    await run.todo.each(work, parallel=PARALLEL)

"""

DEADLY = """
@step
async def read(text):
    seen()
    die()

async def work(run, item):
    if item.text == "deadly":
        await read(item.text)
"""

GOING_ON = """
pages = 0

@step
async def page(number):
    global pages
    pages += 1
    seen()
    if pages == 2:
        die()

async def work(run, item):
    if item.text == "deadly":
        for number in range(6):
            await page(number)
"""
"""Each process ends one more step than the one before it."""

BESIDE = """
another = asyncio.Event()

@step
async def page(number):
    return os.getpid()

async def work(run, item):
    if item.text == "deadly":
        await another.wait()
        seen()
        die()
    for number in range(1000):
        if await page(number) == os.getpid():
            another.set()
            await asyncio.sleep(1000)
"""
"""In each process the harmless item ends one more step before the deadly one dies."""

STUCK = "stuck: the process has crashed 3 times while 'deadly' ran, with nothing new on record"


def source(work: str, parallel: int = 1) -> str:
    return ITEMS.replace("PARALLEL", str(parallel)) + work


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "w"


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    processes: list[subprocess.Popen[str]] = []

    def start(*words: object, **policy: float) -> subprocess.Popen[str]:
        """The command, or else the supervisor with this policy."""
        process = supervised.satchel(folder, *words) if words else supervised.supervise(folder, **policy)
        processes.append(process)
        return process

    yield start
    supervised.clean_up([folder], processes)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=supervised.PATIENCE)
    return process.returncode, said


def by_hand(folder: Path) -> int:
    """Run it in a process without a supervisor. Its exit code, negative for the signal that it died of."""
    program = "import satchel; raise SystemExit(['completed', 'paused'].index(satchel.run('.').status))"
    return warm.run([sys.executable, "-c", program], cwd=folder, capture_output=True).returncode


def moment_of(folder: Path) -> Moment:
    return look(DiskStore(folder)).moment


def crashes(moment: Moment) -> dict[str, int]:
    """Of the open items, by title, and of the agent itself."""
    return {scope.title: scope.crashes for scope in moment.root.scopes.values()}


def test_an_item_that_kills_its_process_after_some_time_is_started_for_ever(folder: Path, start: Start) -> None:
    """However long it lives each time: with this policy no death is an early one."""
    supervised.make(folder, source(DEADLY))
    code, said = ended(start(early=0.0))
    assert code == 3 and STUCK in said, said
    assert len(seen(folder)) == 3
    moment = moment_of(folder)
    assert moment.status == "paused" and moment.reason == STUCK
    assert moment.error is not None and moment.error.kind == "Crashed"


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("work", [DEADLY, DEADLY.replace("die()", "raise SystemExit(5)")], ids=["killed", "exit"])
def test_a_person_who_starts_it_again_each_time_runs_it_for_ever(folder: Path, work: str) -> None:
    supervised.make(folder, source(work))
    died = 5 if "SystemExit" in work else -signal.SIGKILL
    assert [by_hand(folder) for _ in range(5)] == [died] * 3 + [1, 1]
    assert len(seen(folder)) == 3 and moment_of(folder).reason == STUCK


def test_serve_starts_it_for_ever(folder: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEN", str(folder / "seen"))
    supervised.make(folder, source(DEADLY))
    served = Served(folder.parent, policy=Policy(first_delay=0.01, longest_delay=0.02))
    try:
        served.until_event("paused", folder.name)
        for _ in range(3):
            served.turn()
        assert not served.server.running
    finally:
        served.end()
    assert ended(start("serve", "--once", folder.parent))[0] == 0
    assert len(seen(folder)) == 3 and moment_of(folder).reason == STUCK


def test_a_resume_gives_a_stuck_item_more_or_less_than_one_attempt(folder: Path, start: Start) -> None:
    supervised.make(folder, source(DEADLY))
    ended(start())
    assert ended(start("resume", folder))[0] == 3
    assert len(seen(folder)) == 4 and moment_of(folder).reason == STUCK
    (folder / "todo.md").write_text((folder / "todo.md").read_text().replace("deadly", "mended"))
    assert ended(start("resume", folder))[0] == 0


def test_an_item_that_comes_further_each_time_is_stuck(folder: Path, start: Start) -> None:
    supervised.make(folder, source(GOING_ON))
    code, said = ended(start(early=0.0))
    assert code == 0 and len(seen(folder)) == 11, said


def test_an_item_that_comes_further_hides_the_one_next_to_it_that_does_not(folder: Path) -> None:
    supervised.make(folder, source(BESIDE, parallel=2))
    assert [by_hand(folder) for _ in range(4)] == [-signal.SIGKILL] * 3 + [1]
    moment = moment_of(folder)
    assert moment.reason == STUCK and crashes(moment) == {"": 1, "deadly": 3, "harmless": 1}


def test_a_stop_by_force_counts_as_a_crash(folder: Path, start: Start) -> None:
    """By the supervisor, for its time limit, and in an emergency."""
    supervised.make(folder, source(DEADLY.replace("die()", "import time; time.sleep(1000)")))
    for number in range(1, 4):
        process = start(drain_timeout=0.1, grace=0.1)
        wait_until(lambda number=number: len(seen(folder)) == number, process)
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 3
    process = start()
    wait_until(lambda: len(seen(folder)) == 4, process)
    assert ended(start("stop", folder))[0] == 0
    ended(process)
    assert not any(crashes(moment_of(folder)).values())


@pytest.mark.parametrize("boot", ["same", "another"])
def test_a_reboot_counts_as_a_crash(folder: Path, monkeypatch: pytest.MonkeyPatch, boot: str) -> None:
    supervised.make(folder, source(DEADLY))
    for _ in range(2):  # from the second one on it is on record that the item has begun
        assert by_hand(folder) == -signal.SIGKILL
    if boot == "another":
        monkeypatch.setattr(recovery, "boot_id", lambda: "another")
    with opened(DiskStore(folder), "recover", Report()) as workspace:
        workspace.close()
    counted = {"": 1, "deadly": 0} if boot == "another" else {"": 2, "deadly": 1}
    assert crashes(workspace.moment) == counted
    with opened(DiskStore(folder), "recover", Report()) as workspace:
        workspace.close()
    assert crashes(workspace.moment) == counted, "one crash is counted twice"


def test_a_failing_disk_or_a_command_that_dies_counts_as_a_crash(folder: Path) -> None:
    supervised.make(folder, source(DEADLY))
    assert by_hand(folder) == -signal.SIGKILL
    for why in ("answer", "run"):
        with suppress(StorageFailed), opened(DiskStore(folder), why, Report()):
            raise StorageFailed("can't be written")
    with opened(DiskStore(folder), "recover", Report()) as workspace:
        workspace.close()
    assert crashes(workspace.moment) == {"": 1}
