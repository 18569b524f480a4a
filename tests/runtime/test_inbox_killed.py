"""SIGKILL at any moment of a run with an inbox: each task is done once, here or where it was handed on to."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("killing_inbox.py")


def kill(part: int, parts: int) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, str(part), str(parts)], capture_output=True, text=True, timeout=600, check=False
    )
    print(done.stdout, done.stderr)  # names the moment; shown when the test fails
    assert done.returncode == 0
    kills, _, _, moments, _ = done.stdout.split()
    # How often a projection is written depends on how busy the machine is, and so does the number of calls.
    assert int(moments) > 100 and int(kills) * parts >= int(moments) * 0.8, "the moments must lie inside the run"


def test_a_task_is_lost_or_done_twice_by_a_kill() -> None:
    seed = int(os.environ.get("SATCHEL_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}")
    kill(seed % 25, 25)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_a_kill_at_any_call_loses_a_task(part: int) -> None:
    kill(part, 4)
