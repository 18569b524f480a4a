"""The samples of the adapters: each books a flight once although it is killed in the middle of that, and asks nothing
twice that it has been told."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import warm
from waits import PATIENCE

import satchel

SAMPLES = {
    "claude-agent-sdk": "claude_agent_sdk",
    "deepagents": "deepagents",
    "langgraph": "langgraph",
    "openai-agents": "agents",
    "pydantic-ai": "pydantic_ai",
}


def start(folder: Path, module: str) -> tuple[int, list[str]]:
    """Run the sample in a process of its own, to the end of that. Its return code, and the lines that it prints."""
    code = f"import sys, {module}, satchel\nsatchel.run(sys.argv[1]).raise_for_status()"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    done = warm.run(
        [sys.executable, "-c", code, folder],
        cwd=folder,
        env={**environment, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_a_flight_is_booked_twice_or_something_is_asked_twice(name: str, tmp_path: Path) -> None:
    pytest.importorskip(SAMPLES[name])
    made = satchel.open(satchel.new(name, tmp_path / "trip").folder)
    _, asked = start(tmp_path / "trip", SAMPLES[name])
    assert made.status().state == "waiting" and "asking" in asked[0]
    made.answer("approve")
    code, died = start(tmp_path / "trip", SAMPLES[name])
    assert code == -signal.SIGKILL
    code, told = start(tmp_path / "trip", SAMPLES[name])
    assert code == 0 and made.status().state == "completed"
    lines = [line for line in [*asked, *died, *told] if line.startswith("asking")]
    assert len(lines) == len({*lines}) > 1
    assert len((tmp_path / "trip/bookings.txt").read_text().splitlines()) == 1
