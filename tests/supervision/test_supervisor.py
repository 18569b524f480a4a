"""A supervisor and its child: real processes, real signals, real kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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

    def start(source: str = WAITING, extra: str = "", *words: str, **options: float) -> subprocess.Popen[str]:
        supervised.make(folder, source, extra)
        process = supervised.satchel(folder, *words, folder) if words else supervised.supervise(folder, **options)
        processes.append(process)
        if source != DYING:
            wait_until(lambda: seen(folder), process)
        return process

    yield start
    supervised.clean_up([folder], processes)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=supervised.PATIENCE)
    return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_supervisor_does_not_drain_the_child(folder: Path, start: Started, number: int) -> None:
    process = start()
    process.send_signal(number)
    code, said = ended(process)
    assert code == 3 and "paused by a signal" in said, said
    assert journal(folder)[-1]["type"] == "closed"
    assert not supervised.is_alive(seen(folder)[0]) and len(seen(folder)) == 1


def test_the_command_runs_without_a_child(folder: Path, start: Started) -> None:
    process = start(WAITING, "", "run")
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
    assert [record["type"] for record in journal(folder)][-3:] == ["forced", "paused", "closed"]


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
    start(PARENT)
    (child,) = seen(folder)
    wait_until(lambda: len(supervised.session(child)) == 3)

    def pipes(pid: int) -> set[str]:
        links = (os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd") if int(fd) > 2)
        return {link for link in links if link.startswith("pipe:")}

    assert pipes(child)
    for grandchild in supervised.session(child) - {child}:
        wait_until(lambda one=grandchild: not pipes(one))  # until then it is what was forked, before its own program


def test_a_blocked_child_outlives_its_supervisor(folder: Path, start: Started) -> None:
    process = start(BLOCKING, drain_timeout=0.2, grace=0.2)
    (child,) = seen(folder)
    process.kill()
    wait_until(lambda: not supervised.is_alive(child))


def test_a_killed_child_is_not_started_again(folder: Path, start: Started) -> None:
    process = start(PARENT)
    (child,) = seen(folder)
    wait_until(lambda: len(supervised.session(child)) == 3)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: len(seen(folder)) == 2, process)
    assert not supervised.session(child), "what it had started works on beside the next one"
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == 3 and f"process {child} died of SIGKILL after" in said and "it is started again in 0." in said, said


def test_who_dies_at_once_is_started_for_ever(folder: Path, start: Started) -> None:
    code, said = ended(start(DYING, most_early=3))
    assert code == 1 and "that were 3 early deaths in a row" in said, said
    assert said.count("it is started again in") == 2
    assert sum(record["type"] == "opened" for record in journal(folder)) == 3


def test_early_deaths_are_counted_though_it_lived_long_between(folder: Path, start: Started) -> None:
    process = start(DYING, most_early=2, early=0.0)
    wait_until(lambda: sum(record["type"] == "opened" for record in journal(folder)) > 3, process)


def test_waiting_to_start_again_cannot_be_interrupted(folder: Path, start: Started) -> None:
    process = start(DYING, first_delay=1000.0, longest_delay=1000.0)
    assert process.stdout is not None and "started again" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    code, said = ended(process)
    assert code == 3 and "stopped while it waited" in said


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
    code, said = ended(supervised.satchel(folder, "run", "--detach", folder))
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
