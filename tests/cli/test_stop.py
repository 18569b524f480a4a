"""`stop`: nothing is left, nothing comes back, and nobody else is hit."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from supervision import supervised
from supervision.supervised import BLOCKING, PARENT, is_alive, seen, session, wait_until
from waits import PATIENCE

from satchel import open as open_run
from satchel import open_all, stop_all
from satchel.runtime.api import stops
from satchel.runtime.supervision.forced_stop import after_kill
from satchel.workspace.inspect import lease
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import PauseRequested
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore

from .conftest import ASKING, SLOW, Cli, Make, data_of, satchel


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """What a test has started below `tmp_path`."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    supervised.clean_up([path.parent for path in tmp_path.rglob("workspace.yaml")], processes)


def started(runs: list[subprocess.Popen[str]], folder: Path, source: str = PARENT, *options: str) -> int:
    """Starts a run, and returns the number of its process when its step has begun."""
    supervised.make(folder, source)
    runs.append(supervised.satchel(folder, "run", *options, folder))
    wait_until(lambda: seen(folder), runs[-1])
    if source == PARENT:
        wait_until(lambda: (folder / "seen").exists() and len(family(seen(folder)[0])) == 3, runs[-1])
    return seen(folder)[0]


def family(pid: int) -> set[int]:
    """A process and its children."""
    return {pid, *(int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())}


def test_something_is_left_of_several_runs_and_what_they_started(
    tmp_path: Path, runs: list[subprocess.Popen[str]]
) -> None:
    folders = [tmp_path / "a", tmp_path / "deep" / "b", tmp_path / "c"]
    leaders = [
        started(runs, folder, source) for folder, source in zip(folders, (PARENT, PARENT, BLOCKING), strict=True)
    ]
    all_of_them = set().union(*map(session, leaders))
    assert len(all_of_them) == 7
    done = satchel("stop", "--all", tmp_path, "--reason", "wrong: people", "--json", is_cold=True)
    left = [pid for pid in all_of_them if is_alive(pid)] + [run.pid for run in runs if is_alive(run.pid)]
    assert not left and done.returncode == 0, done.stdout + done.stderr
    assert [each["how"] for each in json.loads(done.stdout)] == ["stopped"] * 3
    for folder, run in zip(folders, runs, strict=True):
        text = (folder / "pause.yaml").read_text()
        assert "mode: emergency\n" in text and 'reason: "wrong: people"\n' in text and "status: paused\n" in text
        assert "forced: true\n" in text
        assert run.wait(PATIENCE) in (-9, 3), (
            "its supervisor may see pause.yaml before it is killed, and ends as paused"
        )


def test_a_stopped_run_comes_back(tmp_path: Path, runs: list[subprocess.Popen[str]], cli: Cli) -> None:
    folder = tmp_path / "a"
    started(runs, folder)
    cli("stop", folder)
    again = satchel("run", folder)
    assert again.returncode == 3 and len(seen(folder)) == 1, again.stdout


def test_a_run_without_a_supervisor_is_not_found(tmp_path: Path, runs: list[subprocess.Popen[str]], cli: Cli) -> None:
    pid = started(runs, tmp_path / "a", BLOCKING, "--in-process")
    result = cli("stop", tmp_path / "a")
    assert result.exit_code == 0 and f"process {pid} killed" in result.stdout
    assert runs[0].wait(PATIENCE) == -9


def test_a_process_that_got_the_number_later_is_killed(make: Make, cli: Cli) -> None:
    folder = make()
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        try:
            store = DiskStore(folder)
            for started in ("1", ""):
                process = lease.Process(pid=stranger.pid, process_started=started)
                mine = lease.Lease(
                    run_id="demo-1a2b",
                    host=socket.gethostname(),
                    pid=stranger.pid,
                    process_started=started,
                    epoch=1,
                    since="2026-01-01T00:00:00.000Z",
                    url=store.url,
                    supervisor=process,
                )
                store.replace(lease.PATH, lease.encode(mine))
                result = cli("stop", folder)
                assert result.exit_code == 0 and "nothing was running" in result.stdout
                assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.fixture
def victims() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes that do nothing, and that a lease may name."""
    with ExitStack() as started:

        def start(**options: Any) -> subprocess.Popen[bytes]:
            process = started.enter_context(subprocess.Popen(["sleep", "1000"], **options))
            started.callback(process.kill)
            return process

        yield start


def process_of(victim: subprocess.Popen[bytes]) -> lease.Process:
    return lease.Process(pid=victim.pid, process_started=lease.process_started(victim.pid))


def put_lease(folder: Path, child: lease.Process, supervisor: lease.Process | None = None, url: str = "") -> None:
    mine = lease.Lease(
        run_id="demo-1a2b",
        host=socket.gethostname(),
        pid=child.pid,
        process_started=child.process_started,
        epoch=1,
        since="2026-01-01T00:00:00.000Z",
        url=url or str(folder),
        supervisor=supervisor,
    )
    DiskStore(folder).replace(lease.PATH, lease.encode(mine))


def test_a_lease_without_a_lock_has_the_process_killed_that_it_names(
    make: Make, cli: Cli, victims: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """A copy of a running workspace's folder names the original's process, and a forged lease names any."""
    folder, victim = make(), victims()
    put_lease(folder, process_of(victim), process_of(victim))
    result = cli("stop", folder)
    assert result.exit_code == 0 and "nothing was running" in result.stdout
    assert victim.poll() is None


@pytest.mark.parametrize("opens", ["nothing", "a hard link", "the lock of another place"])
def test_a_lock_that_is_held_has_a_process_killed_that_does_not_hold_it(
    make: Make, cli: Cli, victims: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, opens: str
) -> None:
    monkeypatch.setattr("satchel.runtime.supervision.kill._PATIENCE", 0.1)
    folder = make()
    with DiskStore(folder).lock():
        lock = folder / ".satchel/lock"
        if opens == "a hard link":
            os.link(lock, folder / "linked")
        with open(lock if opens != "nothing" else os.devnull) as file:
            victim = victims(stdin=file)
        put_lease(folder, process_of(victim), url="/somewhere/else" if opens == "the lock of another place" else "")
        result = cli("stop", folder)
    assert result.exit_code == 1 and "holds the lock" in result.stdout
    assert victim.poll() is None


def test_a_lease_has_any_process_killed_as_its_supervisor(
    make: Make, cli: Cli, victims: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.runtime.supervision.kill._PATIENCE", 0.1)
    folder = make()
    with DiskStore(folder).lock():
        with open(folder / ".satchel/lock") as file:
            child = victims(stdin=file)
        stranger = victims()
        put_lease(folder, process_of(child), process_of(stranger))
        result = cli("stop", folder, "--json")
    assert data_of(result)[0]["killed"] == [child.pid]
    assert child.wait(PATIENCE) == -9 and stranger.poll() is None


def test_a_lock_that_can_not_be_looked_at_keeps_the_others_running(
    make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, other = make(ASKING, name="all/a"), make(ASKING, name="all/b")
    for each in (folder, other):
        cli("run", each)
    (folder / ".satchel/lock").unlink()
    (folder / ".satchel/lock").symlink_to("/nowhere")
    result = cli("stop", "--all", folder.parent, "--json")
    assert [each["how"] for each in data_of(result)] == ["failed", "idle"]
    assert "mode: emergency" in (other / "pause.yaml").read_text()


def test_a_lock_that_somebody_holds_is_taken_for_nobody(make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.runtime.supervision.kill._PATIENCE", 0.1)
    folder = make()
    with DiskStore(folder).lock():
        result = cli("stop", folder)
        assert result.exit_code == 1 and "holds the lock" in result.stdout


def test_another_machine_s_process_is_waited_for_or_said_to_be_stopped(make: Make, cli: Cli) -> None:
    folder = make()
    store = DiskStore(folder)
    there = lease.Lease(
        run_id="demo-1a2b",
        host="elsewhere",
        pid=os.getpid(),
        process_started="1",
        epoch=1,
        since="2026-01-01T00:00:00.000Z",
        url="/w",
    )
    store.replace(lease.PATH, lease.encode(there))
    with store.lock():
        result = cli("stop", folder)
    assert result.exit_code == 1 and "on elsewhere" in result.stdout and "within one poll" in result.stdout


@pytest.mark.parametrize(
    "before", ["", "# keep me\nreason: mine\nx-note: 3\n", "status: paused\nmode: drain\n", "status: resume  # go\n"]
)
def test_a_person_s_words_are_lost(make: Make, cli: Cli, before: str) -> None:
    folder = make()
    (folder / "pause.yaml").write_text(before)
    assert cli("stop", folder).exit_code == 0
    after = (folder / "pause.yaml").read_text()
    assert "mode: emergency" in after and "status: requested" in after
    for kept in ("# keep me", "x-note: 3", "# go"):
        assert (kept in before) == (kept in after)
    assert not (folder / "pause.rejected.yaml").exists()


def test_a_damaged_pause_file_is_lost_or_stops_the_stop(make: Make, cli: Cli) -> None:
    folder = make()
    (folder / "pause.yaml").write_bytes(b"status: [\xff")
    assert cli("stop", folder).exit_code == 0
    assert (folder / "pause.rejected.yaml").read_bytes() == b"status: [\xff"
    assert "mode: emergency" in (folder / "pause.yaml").read_text()
    (folder / "pause.yaml").write_bytes(b"status: [again")
    assert cli("stop", folder).exit_code == 0
    assert (folder / "pause.rejected.yaml").read_bytes() == b"status: [\xff"
    assert (folder / "pause.rejected-2.yaml").read_bytes() == b"status: [again"
    assert "pause.yaml, line" in (folder / "pause.rejected-2.txt").read_text()


def test_a_second_stop_changes_something(make: Make, cli: Cli) -> None:
    folder = make()
    cli("stop", folder, "--reason", "first")
    before = (folder / "pause.yaml").read_bytes()
    result = cli("stop", folder, "--reason", "second", "--json")
    assert (folder / "pause.yaml").read_bytes() == before
    assert data_of(result) == [{"url": str(folder), "how": "idle", "killed": [], "said": ""}]


def test_a_pause_file_is_written_where_no_workspace_is(tmp_path: Path, cli: Cli) -> None:
    assert cli("stop", tmp_path).exit_code == 2 and not os.listdir(tmp_path)
    assert cli("stop", tmp_path, "--all", tmp_path).exit_code == 2
    assert cli("stop", "--all", tmp_path / "no").exit_code == 2
    assert cli("stop", "--all", tmp_path).exit_code == 0


@pytest.mark.usefixtures("holder_stays")
def test_pausing_what_somebody_starts_at_the_same_moment_is_asked_for(
    make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command has found nobody at work, and is refused when it wants to write that down itself."""
    workspace = make()
    monkeypatch.setattr(stops.lease, "holder", lambda store: None)
    with DiskStore(workspace).lock():
        done = cli("pause", workspace, "--reason", "a look")
    assert done.exit_code == 0 and "stops at its next safe point" in done.output
    assert "reason: a look" in (workspace / "pause.yaml").read_text()


@pytest.mark.parametrize("then", ["force", "extend"])
def test_a_wait_for_a_run_that_never_stops_never_ends(
    make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """This process has it and looks at nothing, as a blocked agent without a supervisor does."""
    monkeypatch.setattr(stops, "_MARGIN", 0.3)
    monkeypatch.setattr(stops, "FORCE_AFTER", 0.0)
    folder = make(extra=f"drain: {{timeout: 0s, then: {then}}}\n")
    store, looks = DiskStore(folder), []
    with opened(store, "run", Report()) as workspace:
        workspace.journal.flush()

        def look_again(*_: object) -> None:
            looks.append(time.sleep(0.05))
            if then == "extend" and len(looks) == 20:  # it has come to its end after all
                workspace.close("completed")

        monkeypatch.setattr("satchel.runtime.status.place.sleep", look_again)
        done = cli("pause", "--wait", folder)
    if then == "extend":
        assert done.exit_code == 0 and done.stdout.endswith(": completed\n"), done.output
    else:
        assert done.exit_code == 1 and f"has not stopped in 0 s; `satchel stop {folder}` kills it" in done.stdout


def test_a_wait_does_not_see_what_a_supervisor_makes_of_a_kill(
    make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the death of a process and the word of its supervisor no process has the workspace."""
    folder = make()
    with opened(DiskStore(folder), "run", Report()) as workspace:
        workspace.journal.flush()
    held = lease.read(DiskStore(folder))
    holders = [held, held, None, None]
    monkeypatch.setattr(stops.lease, "holder", lambda store: holders.pop(0) if holders else None)

    def look_again(seconds: float) -> None:
        if len(holders) == 1:
            after_kill(DiskStore(folder), PauseRequested(reason="x", by="y"), 0.0, datetime.now(UTC))

    monkeypatch.setattr("satchel.runtime.status.place.sleep", look_again)
    done = cli("pause", "--wait", folder)
    assert done.exit_code == 0 and done.stdout.endswith(": paused\n"), done.output


def test_a_killed_run_says_that_a_stop_is_only_wanted(
    make: Make, cli: Cli, started: Callable[[Path], subprocess.Popen[str]]
) -> None:
    folder = make(SLOW)
    process = started(folder)
    assert cli("stop", folder, "--reason", "wrong data").exit_code == 0
    process.wait()
    said = (folder / "pause.yaml").read_text()
    assert "status: paused" in said and "paused_at:" in said and "forced: true" in said and "mode: emergency" in said
    assert cli("run", folder).exit_code == 3  # it stays stopped
    (recovered,) = folder.glob("recovered/*/*.md")
    assert "a forced stop" in recovered.read_text()


def test_a_completed_run_keeps_an_emergency_for_ever(make: Make, cli: Cli) -> None:
    folder = make()
    assert cli("run", folder).exit_code == 0
    assert cli("stop", folder).exit_code == 0
    assert not (folder / "pause.yaml").exists()
    assert cli("run", folder).exit_code == 0


def test_all_needs_a_folder(make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(ASKING, name="runs/demo")
    cli("run", folder)
    monkeypatch.chdir(folder.parent)
    result = cli("stop", "--all")
    assert result.exit_code == 0 and "demo" in result.stdout
    assert "mode: emergency" in (folder / "pause.yaml").read_text()


def test_a_stop_of_all_pauses_what_never_began_or_was_paused_and_can_not_be_undone(
    tmp_path: Path, runs: list[subprocess.Popen[str]], make: Make, cli: Cli
) -> None:
    new, asking, paused = make(name="runs/new"), make(ASKING, name="runs/asking"), make(ASKING, name="runs/paused")
    for folder in (asking, paused):
        cli("run", folder)
    (paused / "pause.yaml").write_text("reason: the audit\n")
    assert cli("run", paused).exit_code == 3
    as_paused = (paused / "pause.yaml").read_bytes()
    active = tmp_path / "runs/active"
    started(runs, active)
    stopped = cli("stop", "--all", tmp_path / "runs", "--reason", "wrong recipients")
    assert stopped.exit_code == 0 and "1 stopped, 2 not running, 1 never begun and left alone" in stopped.stderr
    assert "runs/new" not in stopped.stdout and "paused before, and stays so: the audit" in stopped.stdout
    assert {path.name for path in new.iterdir()} == {"agent.py", "workspace.yaml"}
    assert (paused / "pause.yaml").read_bytes() == as_paused
    undo = f"satchel resume --all {tmp_path / 'runs'} --stopped-by 'wrong recipients'"
    assert undo in stopped.stderr

    refused = cli("resume", "--all", tmp_path / "runs", "--stopped-by", "another")
    assert refused.exit_code == 2 and "no run was stopped with the reason 'another'" in refused.stderr
    assert "'wrong recipients' (2 runs)" in refused.stderr and "the audit" not in refused.stderr
    assert cli("resume", "--all", tmp_path / "runs").exit_code == 2
    undone = data_of(cli("resume", "--json", *shlex.split(undo)[2:]))
    assert [each["url"] for each in undone] == [str(active), str(asking)] and all(each["resumes"] for each in undone)
    assert cli("run", paused).exit_code == 3 and "the audit" in cli("status", paused).stdout
    assert data_of(cli("run", "--json", asking))["status"] == "waiting"


def test_all_that_were_found_are_spared_one_by_one(make: Make) -> None:
    (found,) = open_all(make(name="runs/new").parent)
    assert stop_all([found])[0].how == "new" and found.stop().how == "idle"


@pytest.mark.parametrize(("ends", "said"), [("completed", "it has completed"), ("cancelled", "it was cancelled")])
def test_a_run_that_is_over_is_stopped(make: Make, cli: Cli, ends: str, said: str) -> None:
    folder = make()
    if ends == "completed":
        assert cli("run", folder).exit_code == 0
    else:
        assert cli("pause", folder).exit_code == 0 and cli("run", folder).exit_code == 3
        assert cli("cancel", folder, "--yes", "--reason", "not needed").exit_code == 0
    before = open_run(folder).status().moment
    result = cli("stop", folder)
    assert result.exit_code == 0 and said in result.stdout and "start it now" not in result.stdout
    after = open_run(folder).status().moment
    assert before is not None and after is not None
    assert (after.status, after.reason) == (ends, before.reason) and after.pause == before.pause
    assert not (folder / "pause.yaml").exists()


UNDOING = BLOCKING.replace(
    "@agent\n",
    'async def undo(run):\n    pathlib.Path(__file__).with_name("undone").touch()\n\n@agent(on_cancel=undo)\n',
)


@pytest.mark.parametrize("how", ["--in-process", ""])
@pytest.mark.parametrize("source", [BLOCKING, UNDOING], ids=["nothing to undo", "undoes"])
def test_a_stop_takes_back_a_cancellation_that_the_run_has_not_seen(
    tmp_path: Path, runs: list[subprocess.Popen[str]], cli: Cli, source: str, how: str
) -> None:
    """The loop of this run is blocked, so nothing is on record when it is killed."""
    folder = tmp_path / "a"
    started(runs, folder, source, *([how] if how else []))
    assert cli("cancel", folder, "--yes", "--reason", "wrong customer").exit_code == 0
    assert cli("pause", folder, "--reason", "lunch").exit_code == 0, "which counts less"
    assert cli("stop", folder).exit_code == 0
    undoes = source == UNDOING
    moment = open_run(folder).status().moment
    assert moment is not None and moment.status == ("paused" if undoes else "cancelled")
    if undoes:
        assert moment.pause is not None and moment.pause.mode == "cancel", "else the next start would go on for ever"
        assert "a cancellation" in cli("status", folder).stdout
    assert cli("resume", folder).exit_code == 7
    moment = open_run(folder).status().moment
    assert moment is not None and moment.status == "cancelled" and (folder / "undone").exists() == undoes
    assert not (folder / "pause.yaml").exists()
