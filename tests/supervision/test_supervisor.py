"""A supervisor and its child: real processes, real signals, real kills."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel.runtime.status.run_status import stand
from satchel.runtime.supervision import forced_stop
from satchel.runtime.supervision.child import Child
from satchel.runtime.supervision.supervisor import Order, Policy, Supervisor
from satchel.workspace.store import DiskStore

from . import supervised
from .supervised import BLOCKING, BUSY, DYING, PARENT, WAITING, journal, lease_of, seen, wait_until

Started = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "w"


@pytest.fixture
def start(folder: Path) -> Iterator[Started]:
    """Supervises an agent, and returns when its step has begun."""
    processes: list[subprocess.Popen[str]] = []

    def start(source: str = WAITING, extra: str = "", *words: str, **options: Any) -> subprocess.Popen[str]:
        supervised.make(folder, source, extra)
        process = (
            supervised.satchel(folder, *words, folder, **options) if words else supervised.supervise(folder, **options)
        )
        processes.append(process)
        if source != DYING:
            wait_until(lambda: seen(folder), process)
        return process

    yield start
    supervised.clean_up([folder], processes)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=supervised.PATIENCE)
    return process.returncode, said


def state_of(pid: int) -> str:
    """R, S, T: as the system calls it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_ctrl_z_stops_only_the_supervisor(folder: Path, start: Started) -> None:
    process = start(PARENT)
    (child,) = seen(folder)
    wait_until(lambda: [name_of(pid) for pid in supervised.session(child)].count("sleep") == 2)
    family = {process.pid, *supervised.session(child)}
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: all(state_of(pid) == "T" for pid in family), process)
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: all(state_of(pid) != "T" for pid in family), process)
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == 3 and "paused by a signal" in said, said


def test_a_child_that_ctrl_z_has_stopped_is_taken_for_deaf_after_fg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    child = Child.__new__(Child)
    child.pid, child._began, child._heard = 0, 0.0, 10.0
    child.thaw(100.0)
    assert child.silent_for(112.0) == 2.0


@pytest.mark.slow
def test_a_frozen_child_is_left_so_when_its_supervisor_is_gone(folder: Path, start: Started) -> None:
    """As when a terminal is closed after Ctrl-Z. Its session has no one else to let it run again."""
    process = start(PARENT, is_cold=True)
    (child,) = seen(folder)
    wait_until(lambda: [name_of(pid) for pid in supervised.session(child)].count("sleep") == 2)
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: state_of(child) == "T", process)
    process.kill()
    wait_until(lambda: not supervised.is_alive(child))
    last = journal(folder)[-1]
    assert (last["type"], last["status"]) == ("closed", "paused")


def test_a_signal_before_the_child_can_handle_it_kills_it(folder: Path) -> None:
    """It has only just been started, and imports."""
    supervised.make(folder, WAITING)
    words = ["run", "--quiet", "--", str(folder)]
    supervisor = Supervisor(DiskStore(folder), Order(words, words), print)
    supervisor.start()
    try:
        supervisor.ask(signal.SIGTERM)
        supervisor.ask(signal.SIGTERM)  # a second one changes nothing
        wait_until(lambda: supervisor.poll() or supervisor.code is not None)
    finally:
        if supervisor.code is None:
            supervisor._the_child().kill()
    assert (supervisor.code, supervisor.why) == (3, "")
    assert stops(folder) == [("pause.requested", "SIGTERM"), ("paused", "")]
    assert journal(folder)[-1]["status"] == "paused" and "forced: false" in (folder / "pause.yaml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("words", [("run",), ("run", "--in-process"), ("serve",)])
def test_a_signal_before_the_command_can_handle_it_kills_it(folder: Path, words: tuple[str, ...]) -> None:
    supervised.make(folder, WAITING)
    process = supervised.satchel(folder.parent if words == ("serve",) else folder, *words, ".", is_cold=True)
    try:
        wait_until(lambda: is_held(process.pid, signal.SIGTERM), process)
        process.send_signal(signal.SIGTERM)
        code, said = ended(process)
        assert code == (0 if words == ("serve",) else 3) and "by force" not in said, said
        assert words == ("serve",) or stops(folder) == [("pause.requested", "SIGTERM"), ("paused", "")]
    finally:
        supervised.clean_up([folder], [process])


def is_held(pid: int, number: int) -> bool:
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    (held,) = [int(row.split()[1], 16) for row in rows if row.startswith("SigBlk:")]
    return bool(held >> (number - 1) & 1)


_FIRST_PROCESS = """
import ctypes, os, subprocess, sys
from satchel.runtime.supervision.child import reap_orphans
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # orphans become children of this process
reading, writing = os.pipe()
command = [sys.executable, "-c", "import os; pid = os.fork() or os._exit(7); os.write(1, b'%d' % pid); os._exit(9)"]
child = subprocess.Popen(command, stdout=writing)
os.close(writing)
for pid in child.pid, int(os.read(reading, 9)):
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
asked = []
reap_orphans(lambda pid: asked.append(pid) or (pid == child.pid and child.poll() is not None))
print(child.pid in asked, len(asked), child.returncode)
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("none is left")
"""


def test_the_first_process_of_a_container_leaves_orphans_or_takes_exit_codes(tmp_path: Path) -> None:
    process = supervised._popen([sys.executable, "-c", _FIRST_PROCESS], tmp_path, is_cold=True)
    assert ended(process) == (0, "True 2 9\nnone is left\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_supervisor_does_not_drain_the_child(folder: Path, start: Started, number: int) -> None:
    process = start()
    process.send_signal(number)
    code, said = ended(process)
    assert code == 3 and "paused by a signal" in said, said
    assert journal(folder)[-1]["type"] == "closed"
    assert not supervised.is_alive(seen(folder)[0]) and len(seen(folder)) == 1


def test_the_command_runs_without_a_child(folder: Path, start: Started) -> None:
    process = start(WAITING, "", "run", is_cold=True)
    held = lease_of(folder)
    assert held.supervisor is not None and held.supervisor.pid == process.pid and held.pid == seen(folder)[0]
    assert os.getsid(held.pid) == held.pid != process.pid
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == 3 and f"satchel resume {folder}" in said, said


def test_a_second_ctrl_c_waits_for_a_blocked_agent(folder: Path, start: Started) -> None:
    process = start(BLOCKING, drain_timeout=1000.0)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGINT)
    code, said = ended(process)
    assert code == 3 and "stopped by force (a second signal)" in said, said
    assert journal(folder)[-1]["type"] == "closed", "what the kill left was not brought to one moment"


def test_a_second_sigterm_is_a_second_ctrl_c(folder: Path, start: Started) -> None:
    process = start(BLOCKING, drain_timeout=1000.0)
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
    assert supervised.is_alive(seen(folder)[0])


def test_a_blocked_agent_is_waited_for_beyond_its_time(folder: Path, start: Started) -> None:
    process = start(BLOCKING, drain_timeout=0.2, grace=0.2)
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == 3 and "stopped by force (it did not stop in time)" in said, said
    assert not supervised.is_alive(seen(folder)[0])
    assert journal(folder)[-1]["type"] == "closed"
    said = (folder / "pause.yaml").read_text()
    assert "status: paused\nreason: signal" in said and "forced: true" in said, "a kill passes for a clean stop"
    told = [record for record in journal(folder) if record["type"] in ("pause.requested", "forced", "paused")]
    assert [record["type"] for record in told] == ["pause.requested", "forced", "paused"]
    assert told[0]["by"] == "SIGTERM" and told[1]["waited"] >= 0.4, "it is not said who has asked, or for how long"


@pytest.mark.parametrize(("text", "reason"), [("reason: the disk\nby: ada\n", "the disk"), ("reason: [\n", "signal")])
def test_a_pause_that_a_blocked_run_has_not_seen_is_lost(folder: Path, start: Started, text: str, reason: str) -> None:
    process = start(BLOCKING, drain_timeout=0.2, grace=0.2)
    (folder / "pause.yaml").write_text(text)
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 3
    said = (folder / "pause.yaml").read_text()
    assert f"reason: {reason}\n" in said and "status: paused" in said and "forced: true" in said, said
    assert (folder / "pause.rejected.yaml").exists() == (reason == "signal")


def test_a_pause_that_was_asked_for_is_not_said_to_be_forced(folder: Path, start: Started) -> None:
    process = start(BUSY, drain_timeout=0.2, grace=0.2)
    (folder / "pause.yaml").write_text("reason: a new disk\n")
    wait_until(lambda: "draining" in (folder / "pause.yaml").read_text(), process)
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == 3 and "stopped by force" in said, said
    said = (folder / "pause.yaml").read_text()
    assert "status: paused" in said and "reason: a new disk" in said and "forced: true" in said
    kinds = [record["type"] for record in journal(folder) if record["type"] != "checkpoint.saved"]
    assert kinds[-3:] == ["forced", "paused", "closed"]


BRIEF = "drain: {timeout: 0.2s}\n"


def stops(folder: Path) -> list[tuple[str, str]]:
    """The records of a stop, and who is named by them."""
    return [
        (record["type"], record.get("by", ""))
        for record in journal(folder)
        if record["type"] in ("pause.requested", "pause.late", "forced", "paused")
    ]


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_pause_of_a_child_that_does_not_notice_it_is_not_enforced(
    folder: Path, start: Started, is_frozen: bool
) -> None:
    process = start(WAITING if is_frozen else BLOCKING, BRIEF, grace=0.2)
    if is_frozen:
        os.kill(seen(folder)[0], signal.SIGSTOP)
    (folder / "pause.yaml").write_text("reason: a new disk\nby: ada\n")
    code, said = ended(process)
    assert code == 3 and "stopped by force (it did not stop in time)" in said, said
    assert not supervised.is_alive(seen(folder)[0]) and len(seen(folder)) == 1
    assert stops(folder) == [("pause.requested", "ada"), ("forced", ""), ("paused", "")]
    said = (folder / "pause.yaml").read_text()
    assert "reason: a new disk\nby: ada\n" in said and "status: paused" in said and "forced: true" in said, said


@pytest.mark.slow
@pytest.mark.parametrize("undoes", [False, True])
def test_a_cancelled_child_that_does_not_notice_it_lives_on(folder: Path, start: Started, undoes: bool) -> None:
    """It is over for good, unless its agent may have something to undo: then the next start lets it."""
    undo = "async def undo(run): pass\n\n@agent(on_cancel=undo)"
    process = start(BUSY.replace("@agent", undo) if undoes else BUSY, BRIEF, grace=0.2)
    os.kill(seen(folder)[0], signal.SIGSTOP)
    told = ended(supervised.satchel(folder, "cancel", "--yes", "--wait", "--by", "ada", folder))
    assert told[0] == 0 and f"{folder}: {'paused' if undoes else 'cancelled'}" in told[1], told
    assert ended(process)[0] == (3 if undoes else 7)
    assert stops(folder)[:2] == [("pause.requested", "ada"), ("forced", "")]
    assert (folder / "pause.yaml").exists() == undoes
    assert ended(supervised.satchel(folder, "run", "--quiet", folder))[0] == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "extra", "by"),
    [
        (BLOCKING, "windows: [{cron: 'NEXT', duration: 1h}]\n", "a window"),
        (BLOCKING, "budget: {time: 4s}\n", "the budget"),
        (BLOCKING, "", "ada"),
        (BUSY.replace("await asyncio.sleep(1000)", "import time; time.sleep(1000)"), "", "ada"),
        (BUSY.replace("async def long", "def long").replace("await asyncio", "import time; time"), "", "ada"),
    ],
)
def test_a_blocked_child_outlives_a_stop(folder: Path, start: Started, source: str, extra: str, by: str) -> None:
    """A window, the budget's time, and a command, in an agent and in steps that block the loop or a thread."""
    process = start(source, BRIEF + (extra if by == "the budget" else ""), grace=0.2)
    if by == "a window":  # which is put into the file now, since a run is not started in one
        opens = datetime.now(UTC) + timedelta(minutes=1)
        file = folder / "workspace.yaml"
        file.write_text(file.read_text() + extra.replace("NEXT", f"{opens.minute} {opens.hour} * * *"))
    elif by == "ada":
        told = ended(supervised.satchel(folder, "pause", "--wait", "--by", "ada", folder))
        assert told[0] == 0 and told[1].endswith(": paused\n"), told
    process.wait(90 if by == "a window" else supervised.PATIENCE)
    assert process.returncode == 3, process.communicate()
    # Each once: a child that is killed while it stops by itself has recorded some of them before.
    assert [*dict.fromkeys(stops(folder))] == [("pause.requested", by), ("forced", ""), ("paused", "")]


def test_a_child_that_dies_while_it_is_to_pause_leaves_no_word_of_that(folder: Path, start: Started) -> None:
    process = start(BLOCKING)
    (folder / "pause.yaml").write_text("reason: a new disk\nby: ada\n")
    os.kill(seen(folder)[0], signal.SIGKILL)
    code, said = ended(process)
    assert code == 3 and "not started again: pause.yaml says" in said, said
    assert stops(folder) == [("pause.requested", "ada"), ("forced", ""), ("paused", "")]


def test_the_time_in_workspace_yaml_is_not_kept(folder: Path, start: Started) -> None:
    process = start(BLOCKING, "drain: {timeout: 0.2s}\n", grace=0.2)
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 3


def test_a_drain_that_is_to_be_extended_is_cut_off(folder: Path, start: Started) -> None:
    process = start(BLOCKING, "drain: {timeout: 0.2s, then: extend}\n", grace=0.1)
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.0)
    assert supervised.is_alive(seen(folder)[0])


def test_the_child_goes_on_when_its_supervisor_is_gone(folder: Path, start: Started) -> None:
    process = start()
    (child,) = seen(folder)
    process.kill()
    wait_until(lambda: not supervised.is_alive(child))
    last = journal(folder)[-1]
    assert (last["type"], last["status"]) == ("closed", "paused")


def test_a_lifeline_leaks_into_what_the_child_starts(folder: Path, start: Started) -> None:
    """Of the pipe's two ends the child has one, and its own children none: they can't hold it open."""
    start(PARENT, is_cold=True)
    (child,) = seen(folder)
    wait_until(lambda: len(supervised.session(child)) == 3)

    def pipes(pid: int) -> set[str]:
        found = set()
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):  # it has just closed that one
                found |= {os.readlink(f"/proc/{pid}/fd/{fd}")} if int(fd) > 2 else set()
        return {link for link in found if link.startswith("pipe:")}

    assert pipes(child)
    for grandchild in supervised.session(child) - {child}:
        wait_until(lambda one=grandchild: not pipes(one))  # until then it is what was forked, before its own program


def test_a_blocked_child_outlives_its_supervisor(folder: Path, start: Started) -> None:
    process = start(BLOCKING, drain_timeout=0.2, grace=0.2)
    (child,) = seen(folder)
    process.kill()
    wait_until(lambda: not supervised.is_alive(child))


def test_a_child_without_its_supervisor_drains_for_a_time_that_workspace_yaml_does_not_say(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor reads the file only when it is running, and again when it has changed."""
    file = supervised.make(folder, BLOCKING, "drain: {timeout: 1h}\n") / "workspace.yaml"
    monkeypatch.setenv("SEEN", str(folder / "seen"))
    words = ["run", "--quiet", "--", str(folder)]
    supervisor = Supervisor(DiskStore(folder), Order(words, words), print, Policy(grace=0.2))
    with monkeypatch.context() as patched:
        patched.delattr(forced_stop, "define")
        supervisor.start()
    child = supervisor._the_child()
    try:
        wait_until(lambda: supervisor.poll() or (seen(folder) and child._patience == 3600.2))
        for drain, patience in (("{timeout: 1h, then: extend}", None), ("{timeout: 0.1s}", 0.1 + 0.2)):
            file.write_text(re.sub("drain: .*", f"drain: {drain}", file.read_text()))
            wait_until(lambda patience=patience: supervisor.poll() or child._patience == patience)
        os.close(child._lifeline)
        assert child._process.wait(supervised.PATIENCE) == -signal.SIGKILL
    finally:
        child._lifeline = -1
        os.close(child._uplink)
        child.kill()


def test_a_killed_child_is_not_started_again(folder: Path, start: Started) -> None:
    process = start(PARENT)
    (child,) = seen(folder)
    wait_until(lambda: len(supervised.session(child)) == 3)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: len(seen(folder)) == 2, process)
    assert not supervised.session(child), "what it had started works on beside the next one"
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == 3 and f"process {child} died of SIGKILL after" in said and "it starts again in 0." in said, said


def test_a_run_that_a_signal_has_stopped_stays_paused_when_its_next_start_dies_in_its_imports(
    folder: Path, start: Started
) -> None:
    process = start(WAITING)
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 3
    (folder / "agent.py").write_text(
        "import os, pathlib, signal\nfrom satchel import agent\n"
        "first = pathlib.Path('killed')\nif not first.exists():\n"
        "    first.touch()\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "@agent\nasync def main(run): ...\n"
    )
    code, said = ended(supervised.supervise(folder))
    assert code == 0 and "died of SIGKILL" in said and "it starts again" in said, said


def test_who_dies_at_once_is_started_for_ever(folder: Path, start: Started) -> None:
    code, said = ended(start(DYING, most_early=3))
    assert code == 1 and "giving up after 3 crashes shortly after start" in said, said
    assert said.count("it starts again in") == 2
    assert sum(record["type"] == "opened" and record["why"] == "run" for record in journal(folder)) == 3
    status = stand(DiskStore(folder))
    assert status.state == "failed" and status.moment is not None and status.moment.error is not None
    assert status.moment.error.message in said, "`status` does not tell the reason"


def test_early_deaths_are_counted_though_it_lived_long_between(folder: Path, start: Started) -> None:
    process = start(DYING, most_early=2, early=0.0)
    wait_until(lambda: sum(record["type"] == "opened" for record in journal(folder)) > 3, process)


@pytest.mark.parametrize("by", ["signal", "a file"])
def test_waiting_to_start_again_cannot_be_interrupted_or_leaves_no_pause(folder: Path, start: Started, by: str) -> None:
    process = start(DYING, first_delay=1000.0, longest_delay=1000.0)
    assert process.stdout is not None and "it starts again" in process.stdout.readline()
    if by == "signal":
        process.send_signal(signal.SIGINT)
    else:
        (folder / "pause.yaml").write_text("reason: mine\n")
    code, said = ended(process)
    assert code == 3 and ("stopped while it waited" if by == "signal" else "pause.yaml says") in said
    status = stand(DiskStore(folder))
    assert status.moment and status.moment.clean and status.moment.pause, "it is paused only by its exit code"
    assert status.moment.pause.reason == ("signal" if by == "signal" else "mine")
    assert "status: paused" in (folder / "pause.yaml").read_text()


@pytest.mark.parametrize("by", ["a signal", "nothing else"])
def test_a_pause_by_another_process_between_two_starts_has_no_word(folder: Path, by: str) -> None:
    """That process has closed the run; no child has said so, and `run --json` would print no document."""
    supervised.make(folder, DYING)
    words = ["run", "--quiet", "--", str(folder)]
    policy = Policy(first_delay=1000.0, longest_delay=1000.0)
    supervisor = Supervisor(DiskStore(folder), Order(words, words), lambda text: None, policy)
    supervisor.start()
    wait_until(lambda: supervisor.poll() or supervisor._phase == "resting")
    assert satchel.open(folder).pause(reason="mine").status == "paused"
    if by == "a signal":
        supervisor.ask(signal.SIGTERM)
    wait_until(lambda: supervisor.poll() or supervisor.code is not None)
    assert supervisor.code == 3
    assert ("waited to start the run again" if by == "a signal" else "pause.yaml says") in supervisor.why


def test_a_child_that_has_closed_the_run_and_can_not_say_so_has_no_word(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised.make(folder, WAITING)
    monkeypatch.setenv("SEEN", str(folder / "seen"))
    words = ["run", "--quiet", "--", str(folder)]
    supervisor = Supervisor(DiskStore(folder), Order(words, words), lambda text: None)
    supervisor.start()
    wait_until(lambda: seen(folder))
    child = supervisor._the_child()
    os.close(child._uplink)  # its word does not arrive
    child._uplink = os.open("/dev/null", os.O_RDONLY)
    supervisor.ask(signal.SIGTERM)
    wait_until(lambda: supervisor.poll() or supervisor.code is not None)
    assert supervisor.code == 3 and supervisor.why == "the run was closed, and its process could not say so"


@pytest.mark.parametrize(("text", "goes_on"), [("", False), ("status: paused\n", False), ("status: resume\n", True)])
def test_a_run_that_is_to_stay_stopped_is_started_again(folder: Path, start: Started, text: str, goes_on: bool) -> None:
    process = start()
    (folder / "pause.yaml").write_text(text)
    os.kill(seen(folder)[0], signal.SIGKILL)
    if goes_on:
        wait_until(lambda: len(seen(folder)) == 2, process)
        return
    code, said = ended(process)
    assert code == 3 and len(seen(folder)) == 1 and "pause.yaml says" in said, said


def test_an_emergency_elsewhere_is_not_obeyed(folder: Path, start: Started) -> None:
    process = start(BLOCKING)
    (folder / "pause.yaml").write_text("mode: emergency  # from another machine\nstatus: requested\n")
    code, said = ended(process)
    assert code == 3 and "stopped by force (emergency stop)" in said
    said = (folder / "pause.yaml").read_text()
    assert "mode: emergency  # from another machine" in said and "status: paused" in said and "forced: true" in said


def test_an_emergency_stop_is_over_with_the_next_start_or_leaves_no_word(folder: Path, start: Started) -> None:
    process = start(WAITING, "", "run", "--quiet")
    assert ended(supervised.satchel(folder, "stop", "--reason", "smoke", folder))[0] == 0
    process.wait(supervised.PATIENCE)
    _, said = ended(supervised.satchel(folder, "status", folder))
    assert "paused" in said and "emergency" in said, said
    assert ended(supervised.satchel(folder, "run", folder))[0] == 3
    said = (folder / "pause.yaml").read_text()
    assert all(each in said for each in ("status: paused", "mode: emergency", "reason: smoke", "forced: true")), said
    (folder / "agent.py").write_text(WAITING.replace("await asyncio.sleep(1000)", "pass"))
    code, said = ended(supervised.satchel(folder, "resume", folder))
    assert code == 0, said
    assert not (folder / "pause.yaml").exists()


def test_a_second_process_is_tried_again_and_again(folder: Path, start: Started) -> None:
    start()
    second = supervised.supervise(folder)
    code, said = ended(second)
    assert code == 6 and "said:" not in said


def test_a_forced_stop_has_no_json(folder: Path, start: Started) -> None:
    process = start(BLOCKING, "", "run", "--json", "--drain-timeout", "1000s")
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.4)
    process.send_signal(signal.SIGINT)
    code, said = ended(process)
    told = json.loads(said[said.index("{") : said.rindex("}") + 1])
    assert code == 3 and told["status"] == "paused" and told["exit_code"] == 3


def test_a_detached_run_ends_with_the_command_or_leaves_no_word(folder: Path, start: Started) -> None:
    supervised.make(folder, WAITING)
    code, said = ended(supervised.satchel(folder, "run", "--detach", folder, is_cold=True))
    try:
        supervisor = lease_of(folder).supervisor
        assert code == 0 and supervisor is not None and f"process {supervisor.pid}" in said, said
        wait_until(lambda: seen(folder))
        os.kill(supervisor.pid, signal.SIGTERM)
        wait_until(lambda: not supervised.is_alive(supervisor.pid))
        assert "paused by a signal" in (folder / ".satchel/run.log").read_text()
    finally:
        supervised.clean_up([folder], [])


def test_a_detached_run_that_ends_at_once_is_said_to_be_running(folder: Path, start: Started) -> None:
    supervised.make(folder, WAITING)
    code, said = ended(supervised.satchel(folder, "resume", "--detach", folder))
    assert code == 2 and "nothing to resume yet" in said, said


def test_a_detached_run_beside_another_is_said_to_be_running(folder: Path, start: Started) -> None:
    first = start(WAITING, "", "run")
    code, said = ended(supervised.satchel(folder, "run", "--detach", folder))
    assert code == 6 and f"process {lease_of(folder).pid}" in said, said
    assert first.poll() is None
