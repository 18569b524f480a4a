"""`serve` and the runs that only a person continues: forks, replays, and runs that have gone back."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import warm

import satchel
from satchel.runtime.api import Handle
from satchel.runtime.supervision.known_run import judge
from satchel.workspace.store import DiskStore

AGENT = """
import os
from satchel import agent, effect, step

@step
def think(text, how):
    if how == "die":
        os._exit(9)
    return text

@effect
def send(text):
    return text

async def work(run, item):
    await send(await think(item.text, run.settings["how"]))

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["a", "b"])
    await run.todo.each(work)
"""


SLEEPING = AGENT.replace(
    "    await send(",
    """    if run.settings["how"] == "sleep":
        await run.sleep(3600)
    if run.settings["how"] == "ask":
        await run.ask("Sure?", choices=["yes", "no"], wait_for=0)
    if run.settings["how"] == "fail":
        raise TypeError("no")
    if run.settings["how"] == "stop":
        os.kill(os.getpid(), 15)
        await run.sleep(100)
    await send(""",
)


def completed(folder: Path) -> Handle:
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT)
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: r-1\nagent: agent.py:main\nsettings: {how: live}\n")
    assert satchel.run(folder).status == "completed"
    return satchel.open(folder)


def sleeping(folder: Path) -> Handle:
    """Like `completed`, of an agent that sleeps, asks or fails in a replay."""
    folder.mkdir()
    (folder / "agent.py").write_text(SLEEPING)
    (folder / "workspace.yaml").write_text(
        "format: 1\nrun_id: r-1\nagent: agent.py:main\nsettings: {how: live}\n"
        "schedule: [{name: often, cron: '* * * * *'}]\n"
    )
    assert satchel.run(folder).status == "completed"
    return satchel.open(folder)


def killed(code: str) -> None:
    ended = warm.run([sys.executable, "-c", f"import os, satchel\n{code}"], capture_output=True, text=True)
    assert ended.returncode == 9, ended.stderr


def starts(folder: Path, *, afresh: bool) -> bool:
    return judge(DiskStore(folder), datetime.now(UTC), afresh=afresh).starts


def test_a_new_serve_starts_a_fork_or_a_run_that_has_gone_back(tmp_path: Path) -> None:
    handle = completed(tmp_path / "run")
    handle.history.fork(tmp_path / "fork", at="^2")
    handle.history.rewind(to="^2")
    for name in ("fork", "run"):
        assert not starts(tmp_path / name, afresh=True) and not starts(tmp_path / name, afresh=False), name


def test_a_killed_replay_is_continued_as_a_run_with_effects(tmp_path: Path) -> None:
    completed(tmp_path / "run")
    there = tmp_path / "replay"
    killed(f"satchel.open({str(tmp_path / 'run')!r}).history.replay('^1', {str(there)!r}, settings={{'how': 'die'}})")
    assert satchel.open(there).status().state == "interrupted"
    assert not starts(there, afresh=True) and not starts(there, afresh=False)
    assert satchel.open(there).check().ok


def test_a_killed_rewind_is_continued_without_a_person(tmp_path: Path) -> None:
    completed(tmp_path / "run")
    killed(
        "from satchel.workspace.lifecycle import Workspace\nWorkspace.close = lambda *_: os._exit(9)\n"
        f"satchel.open({str(tmp_path / 'run')!r}).history.rewind(to='^2')"
    )
    assert satchel.open(tmp_path / "run").status().moment.status == "paused"
    assert not starts(tmp_path / "run", afresh=True) and not starts(tmp_path / "run", afresh=False)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("how", ["sleep", "ask", "fail", "stop"])
def test_a_replay_that_has_stopped_is_continued_by_something_else_than_resume(tmp_path: Path, how: str) -> None:
    run, there = sleeping(tmp_path / "run"), tmp_path / "replay"
    found = run.history.replay("^1", there, settings={"how": how})
    fork = satchel.open(there)
    if how == "ask":
        fork.answer("yes", found.questions[0].id)
    later = datetime.now(UTC) + timedelta(days=1)
    for afresh in (True, False):
        verdict = judge(DiskStore(there), later, afresh=afresh)
        assert not verdict.starts and verdict.at is None, (how, verdict)
    assert found.end == {"sleep": "sleeping", "ask": "waiting", "fail": "failed", "stop": "paused"}[how]
    started = fork.run()
    assert (started.status, started.entered, started.steps) == ("paused", False, 0)
    (there / "pause.yaml").write_text("status: resume\n")
    assert starts(there, afresh=False), "a person has said so"
    (there / "pause.yaml").unlink()
    assert not starts(there, afresh=False)


def test_a_killed_replay_is_run_with_effects(tmp_path: Path) -> None:
    completed(tmp_path / "run")
    there = tmp_path / "replay"
    killed(f"satchel.open({str(tmp_path / 'run')!r}).history.replay('^1', {str(there)!r}, settings={{'how': 'die'}})")
    started = satchel.open(there).run()
    assert (started.status, started.entered, started.steps) == ("paused", False, 0)
    assert started.reason == "the replay was interrupted"
    (there / "workspace.yaml").write_text((there / "workspace.yaml").read_text().replace("how: die", "how: live"))
    assert satchel.open(there).resume().status == "completed"
    assert satchel.open(there).status().moment.is_replay is False


def test_a_replay_that_was_killed_before_it_began_is_run_as_a_fork(tmp_path: Path) -> None:
    completed(tmp_path / "run")
    there = tmp_path / "replay"
    killed(
        "from satchel.runtime.execution import running\nrunning.with_signals = lambda *_: os._exit(9)\n"
        f"satchel.open({str(tmp_path / 'run')!r}).history.replay('^1', {str(there)!r})"
    )
    assert satchel.open(there).run().entered is False
    second = satchel.open(there).history.fork(tmp_path / "second")
    assert satchel.open(second.to).run().status == "completed", "a fork of a replay is a run"
