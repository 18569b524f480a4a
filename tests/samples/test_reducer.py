"""The agent of docs/reducer.md: a function (state, event) -> state over the inbox."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest
import warm

import satchel

PAGE = (Path(__file__).parents[2] / "docs/reducer.md").read_text()
STATES = [{}, {"ada": 10}, {"ada": 30}, {"ada": 30, "grace": 30}]
"""Before each event, and after the last one."""

DYING = """

def plain_but_dies(state, event):
    import os, pathlib, signal
    died = pathlib.Path(__file__).with_name("died")
    if event["amount"] == 20 and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(state, event)


RULES["plain"] = plain_but_dies
"""
"""Lets the process die once, in the middle of the second event."""


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """The workspace of the page, with the events."""
    for path, text in re.findall(r"^```\w+ (bank/[\w./]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path / "bank"


def state(workspace: Path, at: str = "latest") -> dict[str, int]:
    return dict(satchel.open(workspace).history.show(at).agents[0].data)


def test_an_event_counts_twice_or_not_at_all_after_a_kill(bank: Path, tmp_path: Path) -> None:
    code = (bank / "agent.py").read_text()
    assert len([line for line in code.splitlines() if line]) <= 20, "some twenty lines are enough"
    (bank / "agent.py").write_text(code.replace("\n\nasync def reduce", f"{DYING}\n\nasync def reduce"))
    command = [sys.executable, "-m", "satchel", "run", "--in-process", "--quiet", str(bank)]
    assert warm.run(command, timeout=60, check=False).returncode == -signal.SIGKILL
    assert (bank / "died").exists() and state(bank) == STATES[1]
    command[3] = "resume"
    assert warm.run(command, timeout=60, check=False).returncode == 0
    shown = [state(bank, at) for at in ("_inbox-t1", "_inbox-t2", "_inbox-t3", "latest")]
    assert shown == STATES
    work = satchel.open(bank).history.steps().work
    assert [(each.scope, each.state) for each in work] == [(f"_inbox-t{n}", "committed") for n in (1, 2, 3)]

    for n, path, plain, with_fee in ((1, "/ada", 10, 9), (2, "/ada", 30, 29), (3, "/grace", 30, 29)):
        found = satchel.open(bank).history.replay(
            f"_inbox-t{n}", tmp_path / f"replay-{n}", settings={"rule": "with_fee"}
        )
        assert found.end == "done"
        assert [(each.path, each.old, each.new) for each in found.data or ()] == [(path, plain, with_fee)]
    assert state(bank) == STATES[3]


def test_all_events_from_one_on_can_not_be_replayed(bank: Path, tmp_path: Path) -> None:
    handle, again = satchel.open(bank), tmp_path / "again"
    assert handle.run().status == "completed"
    handle.history.fork(again, at="_inbox-t2")
    (again / "inbox").mkdir()
    for name in ("2.yaml", "3.yaml"):
        (again / "inbox" / name).write_bytes((bank / "inbox/done" / name).read_bytes())
    definition = again / "workspace.yaml"
    definition.write_text(definition.read_text().replace("rule: plain", "rule: with_fee"))
    assert satchel.open(again).resume().status == "completed"
    assert state(again) == {"ada": 29, "grace": 29} and state(bank) == STATES[3]
