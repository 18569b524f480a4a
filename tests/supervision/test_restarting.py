"""`restart_every`: a process ends at a safe point, and its supervisor lets another one continue the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import satchel
from satchel.runtime.supervision.forced_stop import after_kill
from satchel.runtime.supervision.supervisor import Order, Supervisor
from satchel.workspace.inspect.load import look
from satchel.workspace.journal import PauseRequested
from satchel.workspace.store import DiskStore

from . import supervised
from .supervised import journal, seen, wait_until

COUNTING = """
import os
from satchel import agent, step

@step
async def one(number: int) -> int:
    with open(os.environ["SEEN"], "a") as file:
        file.write(f"{os.getpid()}\\n")
    return number

@agent
async def main(run):
    return [await one(number) for number in range(5)]
"""

WAITING = """
import asyncio, os
from satchel import agent

@agent
async def main(run):
    with open(os.environ["SEEN"], "a") as file:
        file.write(f"{os.getpid()}\\n")
    if run.attempt < 3:
        await asyncio.sleep(1000)
    return run.attempt
"""

ITEMS = """
import os
from satchel import agent, step

@step
async def one(number: int) -> int:
    with open(os.environ["SEEN"], "a") as file:
        file.write(f"{os.getpid()}\\n")
    return number

async def work(run, item):
    run.state.setdefault("tries", []).append(item.text)
    await one(int(item.text))

@agent
async def main(run):
    await run.plan(None, ["1", "2", "3"])
    await run.todo.each(work)
    return run.state["tries"]
"""

Satchel = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "w"


@pytest.fixture
def satchel_(folder: Path) -> Iterator[Satchel]:
    processes: list[subprocess.Popen[str]] = []

    def start(*words: object) -> subprocess.Popen[str]:
        processes.append(supervised.satchel(folder, *words))
        return processes[-1]

    yield start
    supervised.clean_up([folder], processes)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=60)
    return process.returncode, said


def shared_out(folder: Path) -> list[int]:
    """How many of the steps each process has performed, one after the other."""
    return [seen(folder).count(pid) for pid in dict.fromkeys(seen(folder))]


def test_a_process_ends_after_so_many_steps_and_another_one_continues(folder: Path, satchel_: Satchel) -> None:
    supervised.make(folder, COUNTING, "restart_every: 2\n")
    code, said = ended(satchel_("run", folder))
    assert code == 0 and "result: [0, 1, 2, 3, 4]" in said, said
    assert shared_out(folder) == [2, 2, 1]
    assert said.count("has ended for `restart_every`; another one continues") == 2
    assert "sleeping until" not in said and "next:" not in said, "no person has to do anything"
    assert not (folder / "pause.yaml").exists()
    records = journal(folder)
    assert not [each for each in records if each["type"].startswith("pause")]
    stops = [each.get("reason") for each in records if each["type"] == "closed"]
    assert stops == ["restart after 2 steps", "restart after 2 steps", None]
    assert [each["found"] for each in records if each["type"] == "opened"] == ["new", "clean", "clean"]
    code, said = ended(satchel_("log", folder))
    assert said.count("restart after 2 steps") == 2, said


def test_a_process_ends_after_a_time_also_while_its_agent_waits(folder: Path, satchel_: Satchel) -> None:
    supervised.make(folder, WAITING, "restart_every: 1s\n")
    code, said = ended(satchel_("run", folder))
    assert code == 0 and "result: 3" in said, said
    assert len(set(seen(folder))) == 3


def test_an_item_that_has_done_its_last_step_is_not_done_again(folder: Path, satchel_: Satchel) -> None:
    supervised.make(folder, ITEMS, "restart_every: 1\n")
    code, said = ended(satchel_("run", folder))
    assert code == 0 and 'result: ["1", "2", "3"]' in said, said
    assert shared_out(folder) == [1, 1, 1]


def test_json_of_a_run_that_was_restarted_is_one_document(folder: Path, satchel_: Satchel) -> None:
    supervised.make(folder, COUNTING, "restart_every: 2\n")
    code, said = ended(satchel_("run", "--json", "--quiet", folder))
    document = said[said.index("{") :]
    assert code == 0 and json.loads(document)["result"] == [0, 1, 2, 3, 4], said


def test_serve_restarts_its_runs_and_says_nothing_of_a_sleep(folder: Path, satchel_: Satchel) -> None:
    supervised.make(folder / "a", COUNTING, "restart_every: 2\n")
    code, said = ended(satchel_("serve", "--once", folder))
    assert code == 0 and "sleeping" not in said and "completed" in said, said
    assert shared_out(folder) == [2, 2, 1]


def test_a_run_whose_supervisor_dies_at_the_restart_is_continued_by_any_start(
    folder: Path, satchel_: Satchel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of the stop is all that there is then."""
    supervised.make(folder, COUNTING, "restart_every: 2\n")
    assert ended(satchel_("run", folder))[0] == 0
    path = next(iter(sorted(folder.glob("journal/*.jsonl"))))
    rows = path.read_text().splitlines(keepends=True)
    first_stop = next(number for number, row in enumerate(rows) if json.loads(row)["type"] == "closed")
    fresh = supervised.make(folder.parent / "v", COUNTING)
    (fresh / "workspace.yaml").write_text((folder / "workspace.yaml").read_text())
    (fresh / "journal").mkdir()
    (fresh / "journal" / path.name).write_text("".join(rows[: first_stop + 1]))
    moment = look(DiskStore(fresh)).moment
    assert (moment.status, moment.reason) == ("sleeping", "restart after 2 steps")
    monkeypatch.setenv("SEEN", str(fresh / "seen"))
    outcome = satchel.open(fresh).run(adopt=True)
    assert (outcome.status, outcome.result) == ("completed", [0, 1, 2, 3, 4])


def test_a_run_in_this_process_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    supervised.make(folder, COUNTING, "restart_every: 2\n")
    monkeypatch.setenv("SEEN", str(folder / "seen"))
    assert satchel.run(folder).result == [0, 1, 2, 3, 4]
    assert shared_out(folder) == [5]


def test_a_stop_by_a_signal_is_a_pause_as_ever(folder: Path, satchel_: Satchel) -> None:
    supervised.make(folder, supervised.WAITING, "restart_every: 1h\n")
    process = satchel_("run", folder)
    wait_until(lambda: seen(folder), process)
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == 3 and "paused by a signal" in said, said


def test_a_pause_of_a_person_counts_more_than_a_restart(folder: Path, satchel_: Satchel) -> None:
    supervised.make(folder, WAITING.replace("< 3", "< 2"), "restart_every: 1s\n")
    process = satchel_("run", folder)
    wait_until(lambda: seen(folder), process)
    os.kill(seen(folder)[0], signal.SIGSTOP)  # until the pause is there, it can't restart
    (folder / "pause.yaml").write_text("status: requested\nreason: lunch\n")
    os.kill(seen(folder)[0], signal.SIGCONT)
    code, said = ended(process)
    assert code == 3 and "lunch" in said, said


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("has_ended", [True, False])
def test_a_signal_while_the_process_ends_for_a_restart_leaves_the_run_asleep(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, has_ended: bool
) -> None:
    """The child has closed the run already, and can't record the stop any more."""
    supervised.make(folder, COUNTING, "restart_every: 2\n")
    monkeypatch.setenv("SEEN", str(folder / "seen"))
    store = DiskStore(folder)
    order = Order(["run", str(folder)], ["run", str(folder)])
    supervisor = Supervisor(store, order, lambda text: None)
    supervisor.start()
    child = supervisor._the_child().pid
    if has_ended:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    else:
        wait_until(lambda: look(store).moment.status == "sleeping")
    supervisor.ask(number)
    wait_until(lambda: supervisor.poll() or supervisor.code is not None)
    assert supervisor.code == 3 and "between two processes" in supervisor.why, (supervisor.code, supervisor.why)
    moment = look(store).moment
    assert (moment.status, moment.reason, moment.clean) == ("paused", "signal", True)
    assert moment.pause and moment.pause.by == number.name
    assert "signal" in (folder / "pause.yaml").read_text()
    assert satchel.open(folder).resume().result == [0, 1, 2, 3, 4]


def test_a_signal_before_the_process_can_say_that_it_has_ended_for_a_restart_leaves_the_run_asleep(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised.make(folder, COUNTING, "restart_every: 2\n")
    monkeypatch.setenv("SEEN", str(folder / "seen"))
    store, began = DiskStore(folder), datetime.now(UTC)
    supervisor = Supervisor(store, Order(["run", str(folder)], ["run", str(folder)]), lambda text: None)
    supervisor.start()
    os.waitid(os.P_PID, supervisor._the_child().pid, os.WEXITED | os.WNOWAIT)
    left = after_kill(store, PauseRequested(reason="signal", by="SIGINT"), 0.0, began)
    assert left == ("paused", False, True, None)
    moment = look(store).moment
    assert (moment.status, moment.reason, moment.clean) == ("paused", "signal", True)
    supervisor.ask(signal.SIGINT)
    wait_until(lambda: supervisor.poll() or supervisor.code is not None)
