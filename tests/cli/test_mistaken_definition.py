"""A mistake in the workspace.yaml of a run that is running: the run works on, and so do the commands about it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import warm
from waits import PATIENCE

from .conftest import Cli, Make, data_of

ASKING = """
import asyncio
from satchel import agent

@agent
async def main(run):
    answer = await run.ask("Which city?", ["Porto", "Lisbon"], wait_for=60)
    run.state["city"] = answer.decision
    await run.checkpoint()
    await asyncio.sleep(60)
"""
BROKEN = ("settings: {city: [Porto}\n", "line 4")


@pytest.fixture
def asking(make: Make) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A run that waits for an answer, in a process."""
    folder = make(ASKING)
    running = warm.Popen(
        [sys.executable, "-m", "satchel", "run", "--in-process", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _wait_until((folder / "approvals/a1.yaml").exists)
    yield folder, running
    running.kill()
    running.communicate()


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(("mistake", "named"), [BROKEN, ("run_id: other\n", "run_id is 'other'")])
def test_a_mistake_in_the_definition_hides_a_run_that_works_on(
    asking: tuple[Path, subprocess.Popen[bytes]], cli: Cli, mistake: str, named: str
) -> None:
    folder, running = asking
    definition = folder / "workspace.yaml"
    before = definition.read_text()
    definition.write_text(before.replace("run_id: demo-1a2b\n", mistake) if "run_id" in mistake else before + mistake)

    status = cli("status", folder)
    assert status.exit_code == 0 and "run       demo-1a2b" in status.stdout and "state     running" in status.stdout
    assert named in status.stdout and "the run continues with the last valid version" in status.stdout
    told = data_of(cli("status", folder, "--json"))
    assert told["state"] == "running" and named in told["problem"]["message"]
    (row,) = data_of(cli("ls", folder.parent, "--json"))
    assert row["state"] == "running" and row["run_id"] == "demo-1a2b" and named in row["problem"]["message"]
    assert "fix workspace.yaml" not in cli("ls", folder.parent).stdout  # an answer is wanted first

    answered = cli("answer", folder, "a1", "Porto")
    assert answered.exit_code == 0 and answered.stdout == "a1 is answered: Porto\n" and named in answered.stderr
    assert "fix workspace.yaml" in cli("ls", folder.parent).stdout
    sent = cli("send", folder, "a task")
    assert sent.exit_code == 0 and Path(sent.stdout.strip()).exists() and named in sent.stderr
    asked = cli("pause", folder, "--wait")
    assert asked.exit_code == 0 and named in asked.stdout and "paused" in asked.stdout.splitlines()[-1], asked.output
    said = running.communicate(timeout=PATIENCE)
    assert running.returncode == (2 if "run_id" in mistake else 3), said  # it looks for a `status: resume` at its end

    stopped = cli("status", folder)  # nothing runs by what it said before: it counts as it is
    assert stopped.exit_code == 2 and named in stopped.stderr
    definition.write_text(before)
    assert data_of(cli("status", folder, "--json"))["state"] == "paused"
