"""When a child that does not stop is killed, and what for. The clocks are the tests'."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waits import PATIENCE

from satchel.runtime.supervision import forced_stop
from satchel.runtime.supervision.forced_stop import Deadline, Glance, Late, stop_wanted
from satchel.workspace import journal
from satchel.workspace.base import SIGNAL, time_text
from satchel.workspace.base.errors import StorageFailed
from satchel.workspace.formats import Definition
from satchel.workspace.inspect import load
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import PauseRequested
from satchel.workspace.lifecycle import pausing
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.lifecycle.workspace import Workspace
from satchel.workspace.store import Abilities, DiskStore

HEAD = "format: 1\nrun_id: test-1\nagent: agent.py:main\ndrain: {timeout: 60s}\n"
WINDOW = "windows: [{cron: '0 22 * * *', duration: 6h, reason: maintenance}]\n"


class Run:
    """A run that a child has, and what its supervisor looks at. Time passes only by `after`."""

    def __init__(self, folder: Path, workspace: Workspace, drain_timeout: float | None):
        self.folder, self.workspace, self.moment = folder, workspace, workspace.moment
        self.store = DiskStore(folder)
        self.began = datetime.now(UTC)
        self.seconds = 0.0
        self.glance = Glance(self.store)
        self.deadline = Deadline(self.store, self.glance, drain_timeout, 5.0, 0.0, self.clock)
        assert self.deadline.overdue(0.0) is None

    def clock(self) -> datetime:
        return self.began + timedelta(seconds=self.seconds)

    def after(self, seconds: float) -> Late | None:
        """As a supervisor does it, twice a second."""
        now = 0.0
        for now in (self.seconds + 0.01, self.seconds + seconds):
            self.seconds = now
            if self.glance.has_changed():
                self.deadline.pause_has_changed(now)
            if (late := self.deadline.overdue(now)) is not None:
                return late
        return None

    def save(self, text: str) -> None:
        (self.folder / "pause.yaml").write_text(text)

    def record(self, *records: Any) -> None:
        for each in records:
            self.workspace.journal.add(each)
        self.workspace.journal.flush()


class Remote(DiskStore):
    """A folder of which looking takes its time."""

    @property
    def abilities(self) -> Abilities:
        return super().abilities._replace(remote=True)


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    options = getattr(request, "param", {})
    (tmp_path / "workspace.yaml").write_text(HEAD + options.get("extra", ""))
    made = SimpleNamespace(run=None)
    with opened(DiskStore(tmp_path), "run", Report()) as workspace:
        made.run = Run(tmp_path, workspace, options.get("drain_timeout"))
        monkeypatch.setattr("satchel.workspace.journal.writer.now", lambda: time_text(made.run.clock()))
        yield made.run


def with_options(**options: Any) -> Any:
    return pytest.mark.parametrize("run", [options], indirect=True)


@pytest.mark.parametrize("mode", ["drain", "cancel"])
def test_a_stop_that_the_child_does_not_notice_is_forgotten(run: Run, mode: str) -> None:
    assert run.after(1000) is None
    run.save(f"reason: the disk\nby: ada\nmode: {mode}\n")
    assert run.after(64) is None
    late = run.after(2)
    assert late is not None and late.request == PauseRequested(reason="the disk", by="ada", mode=mode)
    assert 65 <= late.waited < 67


def test_a_stop_that_the_child_has_recorded_is_forgotten(run: Run) -> None:
    run.record(PauseRequested(reason="enough", by="the agent", resume="restart_step"))
    pausing.announce(run.store, run.moment.pause)  # type: ignore[arg-type]
    assert run.after(64) is None
    late = run.after(2)
    assert late is not None and late.request.by == "the agent" and late.request.resume == "restart_step"


def test_a_recorded_stop_is_over_when_its_file_is_removed(run: Run) -> None:
    run.save("reason: mine\n")
    run.after(1)
    run.record(PauseRequested(reason="mine", by="ada"))
    (run.folder / "pause.yaml").unlink()
    assert run.after(50) is None
    assert run.after(50) is not None


@pytest.mark.parametrize("text", [None, "reason: mine\nstatus: resume\n"])
def test_a_wish_that_was_taken_back_kills(run: Run, text: str | None) -> None:
    run.save("reason: mine\n")
    assert run.after(30) is None
    (run.folder / "pause.yaml").unlink()
    if text:
        run.save(text)
    assert run.after(40) is None and run.after(1000) is None
    run.save("reason: another\n")
    assert run.after(60) is None, "the time of the first wish counts for the second"
    late = run.after(6)
    assert late is not None and late.request.reason == "another"


def test_a_comment_in_the_file_prolongs_the_stop(run: Run) -> None:
    run.save("reason: mine\n")
    assert run.after(40) is None
    run.save("reason: mine  # really\n")
    late = run.after(26)
    assert late is not None and late.waited >= 65


def test_the_file_of_a_pause_that_is_over_kills(run: Run) -> None:
    run.record(PauseRequested(reason="mine", by="ada"))
    asked = run.moment.pause.requested_at  # type: ignore[union-attr]
    run.record(journal.Paused(), journal.Resumed(by="ada"))
    run.save(f"status: paused\nrequested_at: {asked}\n")
    assert run.after(1000) is None


@with_options(extra="idle_below: 10m\n")
def test_a_process_that_waits_for_the_end_of_a_short_pause_is_killed(run: Run) -> None:
    until = time_text(run.clock() + timedelta(minutes=5))
    run.record(PauseRequested(reason="mine", by="ada", until=until), journal.Paused())
    run.record(journal.Closed(status="paused"))
    pausing.restore(run.store, run.moment)
    assert run.after(70) is None and run.after(1000) is None
    run.record(journal.Resumed(by="its end"))
    (run.folder / "pause.yaml").unlink()
    assert run.after(10) is None
    run.save("reason: another\n")
    assert run.after(60) is None
    assert run.after(6) is not None


@with_options(extra="idle_below: 10m\n")
def test_a_process_that_waits_until_a_time_that_was_typed_while_it_drained_is_killed(run: Run) -> None:
    run.record(PauseRequested(reason="mine", by="ada"))
    pausing.announce(run.store, run.moment.pause)  # type: ignore[arg-type]
    run.after(1)
    until = time_text(run.clock() + timedelta(minutes=5))
    run.save((run.folder / "pause.yaml").read_text() + f"expected_until: {until}\n")
    run.after(1)
    run.record(journal.Paused(), journal.Closed(status="paused"))
    pausing.restore(run.store, run.moment)
    assert run.after(70) is None and run.after(1000) is None


def test_a_process_that_does_not_end_after_a_pause_is_left(run: Run) -> None:
    run.record(PauseRequested(reason="mine", by="ada"), journal.Paused())
    pausing.restore(run.store, run.moment)
    assert run.after(64) is None and run.after(2) is not None


@with_options(extra=WINDOW)
def test_a_window_that_the_child_does_not_notice_is_forgotten(run: Run) -> None:
    run.began = datetime(2030, 1, 1, 21, tzinfo=UTC)
    run.deadline = Deadline(run.store, run.glance, None, 5.0, run.seconds, run.clock)
    assert run.after(1000) is None and run.after(2590) is None
    assert run.after(10) is None, "the window has just opened"
    assert run.after(60) is None
    late = run.after(10)
    assert late is not None and late.request.by == "a window" and late.request.reason == "maintenance"
    assert late.request.until == "2030-01-02T04:00:00.000Z" and 65 <= late.waited < 80


@with_options(extra=WINDOW)
@pytest.mark.parametrize("by", ["the start", "a person"])
def test_a_window_that_was_overruled_kills(run: Run, by: str) -> None:
    """A run that was started in the window was let go on in it, and so was one that a person has resumed since."""
    run.began = datetime(2030, 1, 1, 22 if by == "the start" else 21, 59, tzinfo=UTC)
    run.deadline = Deadline(run.store, run.glance, None, 5.0, run.seconds, run.clock)
    assert run.after(90) is None
    if by == "a person":
        run.record(PauseRequested(reason="maintenance", by="a window"), journal.Paused(), journal.Resumed(by="ada"))
    assert run.after(3600) is None and run.after(3600) is None


@with_options(extra=WINDOW.replace("[", "[{cron: '0 20 * * *', duration: 20h}, "))
def test_a_window_that_was_overruled_hides_one_that_opens_in_it(run: Run) -> None:
    run.began = datetime(2030, 1, 1, 21, 59, tzinfo=UTC)
    run.deadline = Deadline(run.store, run.glance, None, 5.0, run.seconds, run.clock)
    assert run.after(70) is None and run.after(50) is None
    late = run.after(10)
    assert late is not None and late.request.reason == "maintenance"


@with_options(extra="windows: [{cron: '0 99 * * *', duration: 6h}]\n")
def test_a_window_that_is_no_time_ends_the_supervisor(run: Run) -> None:
    assert run.after(1000) is None and run.after(1000) is None


@with_options(extra="budget: {time: 10m}\n")
def test_a_used_up_time_budget_is_forgotten(run: Run) -> None:
    assert run.after(600) is None and run.after(62) is None
    late = run.after(10)
    assert late is not None and late.request.by == "the budget" and "600 s is used up" in late.request.reason


def test_a_budget_that_is_set_while_it_runs_does_not_count(run: Run) -> None:
    assert run.after(100) is None
    (run.folder / "workspace.yaml").write_text(HEAD + "budget: {time: 1m}\n")
    assert run.after(60) is None
    assert run.after(70) is not None


@with_options(extra="budget: {time: 1m}\n" + WINDOW, drain_timeout=1.0)
def test_the_time_on_the_command_line_does_not_count(run: Run) -> None:
    run.save("reason: mine\n")
    assert run.after(5) is None and run.after(2) is not None


def test_a_signal_finds_no_patience_while_the_storage_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the supervisor, before it had passed the signal on."""
    (tmp_path / "workspace.yaml").write_text(HEAD)
    store = DiskStore(tmp_path)
    found = Deadline(store, Glance(store), None, 5.0, 0.0)

    def fails(path: str) -> str:
        raise StorageFailed("can't be inspected", path=path)

    with monkeypatch.context() as patched:
        patched.setattr(store, "version", fails)
        assert found.patience == Definition("", "").drain_timeout + 5.0
    assert found.patience == 65.0, "it is read once it can be read"


def test_a_signal_of_before_a_start_stops_the_run_when_that_start_dies(run: Run) -> None:
    """A reboot needs nobody, even if the first process is killed during its imports. A signal to that process itself
    is a stop, and stays one."""
    run.record(PauseRequested(reason=SIGNAL, by="SIGTERM"), journal.Paused())
    assert stop_wanted(run.store, datetime.now(UTC) + timedelta(seconds=1)) is None
    assert stop_wanted(run.store, datetime.now(UTC) - timedelta(hours=1)) == PauseRequested(reason=SIGNAL, by="SIGTERM")
    run.save("status: paused\nreason: mine\nby: ada\n")
    later = datetime.now(UTC) + timedelta(seconds=1)
    assert stop_wanted(run.store, later) == PauseRequested(reason="mine", by="ada")


def test_a_run_that_dies_as_it_goes_on_stays_paused(run: Run) -> None:
    """Its pause is over, and only the file is still there. Any other file is a pause, also one with an error in it."""
    run.record(PauseRequested(reason="mine", by="ada"))
    asked = run.moment.pause.requested_at  # type: ignore[union-attr]
    assert stop_wanted(run.store, datetime.now(UTC)) == PauseRequested(reason="mine", by="ada")
    run.record(journal.Paused(), journal.Resumed(by="ada"))
    run.save(f"status: paused\nreason: mine\nrequested_at: {asked}\n")
    assert stop_wanted(run.store, datetime.now(UTC)) is None
    run.save("reason: another\nby: bob\n")
    assert stop_wanted(run.store, datetime.now(UTC)) == PauseRequested(reason="another", by="bob")
    run.save("reason: another\nmode: [\n")
    assert stop_wanted(run.store, datetime.now(UTC)) == PauseRequested(reason="manual", by="a person")


@pytest.mark.parametrize("run", [{"extra": "budget: {time: 1m}\n"}], indirect=True)
def test_a_stop_that_is_to_be_extended_kills(run: Run) -> None:
    (run.folder / "workspace.yaml").write_text(HEAD.replace("60s", "60s, then: extend") + "budget: {time: 1m}\n")
    run.after(1)
    run.save("reason: mine\n")
    assert run.after(100) is None and run.after(1000) is None


@pytest.mark.parametrize("before", ["60s, then: extend", "1h"])
def test_a_time_limit_that_is_set_while_a_stop_takes_too_long_does_not_count(run: Run, before: str) -> None:
    (run.folder / "workspace.yaml").write_text(HEAD.replace("60s", before))
    run.after(1)
    run.save("reason: mine\n")
    assert run.after(100) is None
    (run.folder / "workspace.yaml").write_text(HEAD)
    assert run.after(1) is not None


@pytest.mark.parametrize("text", [None, "format: 1\nagent: [\n"])
def test_a_mistake_in_workspace_yaml_keeps_a_blocked_run_alive(run: Run, text: str | None) -> None:
    """Its child goes on with what the file said before, too."""
    (run.folder / "workspace.yaml").unlink()
    if text:
        (run.folder / "workspace.yaml").write_text(text)
    run.save("reason: mine\n")
    assert run.after(60) is None
    late = run.after(6)
    assert late is not None and late.request.reason == "mine"


def test_a_workspace_that_can_not_be_read_ends_the_supervisor(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(store: Any, **_: Any) -> Any:
        raise StorageFailed("can't be read", path="journal")

    run.save("reason: mine\n")
    with monkeypatch.context() as broken:
        broken.setattr(load, "look", fails)
        assert run.after(100) is None
    assert run.after(1) is None and run.after(10) is not None


def test_a_look_over_a_network_is_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals must be heard meanwhile."""
    far_away = Remote(run.folder)
    run.deadline = Deadline(far_away, run.glance, None, 5.0, 0.0, run.clock)
    may_look, look = threading.Event(), load.look
    monkeypatch.setattr(load, "look", lambda *args, **kept: may_look.wait(PATIENCE) and look(*args, **kept))
    run.save("reason: mine\n")
    assert run.glance.has_changed()
    run.deadline.pause_has_changed(0.0)
    assert run.deadline.overdue(70.0) is None
    may_look.set()
    assert run.deadline._looking is not None
    run.deadline._looking.result(PATIENCE)
    assert run.deadline.overdue(71.0) is not None


def test_a_changed_workspace_yaml_over_a_network_is_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    far_away = Remote(run.folder)
    run.deadline = Deadline(far_away, run.glance, None, 5.0, 0.0, run.clock)
    may_read, define = threading.Event(), forced_stop.define
    monkeypatch.setattr(forced_stop, "define", lambda store: may_read.wait(PATIENCE) and define(store))
    (run.folder / "workspace.yaml").write_text(HEAD.replace("60s", "7s"))
    assert run.deadline.overdue(1.0) is None and run.deadline.patience == 65.0
    may_read.set()
    assert run.deadline._defining is not None
    run.deadline._defining.result(PATIENCE)
    assert run.deadline.overdue(2.0) is None and run.deadline.patience == 12.0


PUTTING_RIGHT = """
import sys
from datetime import UTC, datetime
from satchel.runtime.supervision import forced_stop, supervisor
from satchel.workspace.journal import PauseRequested
from satchel.workspace.store import DiskStore

supervisor._prepare()
store, since, known = DiskStore(sys.argv[1]), datetime.now(UTC), {*sys.modules}
assert forced_stop.stop_wanted(store, since) is None
left = forced_stop.after_kill(store, PauseRequested(reason="manual", by="me"), 1.0, since)
assert (left.status, left.error) == ("paused", None), left
assert not forced_stop.after_stop(store)
late = sorted(name for name in {*sys.modules} - known if name.startswith("satchel"))
assert not late, late
"""


def test_a_stop_by_force_imports_files_of_a_later_version(tmp_path: Path) -> None:
    """What puts the workspace right was imported while the child ran."""
    agent = "import os\nfrom satchel import agent\n@agent\nasync def main(run):\n"
    agent += "    if not run.todo.items:\n        await run.plan('Plan', ['a'])\n    os.kill(os.getpid(), 9)\n"
    (tmp_path / "agent.py").write_text(agent)
    (tmp_path / "workspace.yaml").write_text(HEAD)
    words = [sys.executable, "-m", "satchel", "run", "--in-process", str(tmp_path)]
    assert subprocess.run(words, capture_output=True).returncode == -9
    done = subprocess.run([sys.executable, "-c", PUTTING_RIGHT, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
