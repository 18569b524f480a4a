"""SIGKILL at any moment: every effect is there exactly once, and the result is that of an uninterrupted run."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("killing.py")


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2, 3))])
def test_a_run_killed_at_any_moment_ends_as_an_uninterrupted_one(part: int) -> None:
    seed = int(os.environ.get("SATCHEL_SEED", random.randrange(1 << 30)))
    done = subprocess.run(
        [sys.executable, SCRIPT, str(seed + part), "50"], capture_output=True, text=True, timeout=300, check=False
    )
    print(done.stdout, done.stderr)  # names the seed; shown when the test fails
    assert done.returncode == 0
    kills = int(done.stdout.split()[0])
    assert kills >= 45, "the moments must lie inside the run"
