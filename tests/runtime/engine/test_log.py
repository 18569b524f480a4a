"""The logger `satchel`: lines for programs that log, and none for others."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from satchel import Item, Retry, Run, agent, run, step


def making() -> Any:
    tried: list[str] = []

    @step(retry=Retry(attempts=2, first=0.0))
    async def ask(topic: str) -> str:
        tried.append(topic)
        if len(tried) == 1:
            raise ConnectionError("503")
        return topic

    async def work(run: Run[Any], item: Item) -> None:
        await ask(item.text)

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["tides"])
        await run.todo.each(work)

    return main


INFO = [
    "test-1: start 1, in {url}",
    "test-1: ^1 begun: tides",
    'test-1: ^1 ask("topic":"tides"): asking again in 0 s: ConnectionError: 503',
    "test-1: ^1 committed",
    "test-1: completed",
]


@pytest.mark.parametrize("level", [logging.WARNING, logging.INFO, logging.DEBUG])
def test_a_run_logs_something_else_than_it_does(workspace: Path, caplog: pytest.LogCaptureFixture, level: int) -> None:
    caplog.set_level(level, "satchel")
    assert run(workspace, making()).status == "completed"
    told = [record for record in caplog.records if record.name == "satchel"]
    info = [record.getMessage() for record in told if record.levelno == logging.INFO]
    assert info == ([] if level > logging.INFO else [line.format(url=workspace) for line in INFO])
    debug = [record.getMessage() for record in told if record.levelno == logging.DEBUG]
    assert bool(debug) == (level == logging.DEBUG)
    if debug:
        assert debug[1] == 'test-1: ^1 ask("topic":"tides") failed: ConnectionError: 503'
        assert debug[2].startswith('test-1: ^1 ask("topic":"tides") returned after ')
    assert all(record.levelno <= logging.INFO for record in told)


def test_a_program_that_does_not_log_gets_lines(workspace: Path) -> None:
    (workspace / "agent.py").write_text(
        "from satchel import agent\n\n@agent\nasync def main(run):\n    raise ValueError('no luck')\n"
    )
    script = "import satchel; assert satchel.run('.').status == 'failed'"
    done = subprocess.run([sys.executable, "-c", script], cwd=workspace, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
