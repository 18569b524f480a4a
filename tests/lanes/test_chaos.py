"""Kills, edits, drops, failures and contradictions at random moments of items that run in parallel."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import warm
from properties import ROUNDS
from waits import PATIENCE

from satchel import open as opened

from . import chaos

_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from lanes import chaos; chaos.main(*sys.argv[1:])"
_SEED = int(os.environ.get("SATCHEL_SEED") or 1)
_MORE = [pytest.param(_SEED + number, marks=pytest.mark.slow) for number in range(1, 2 * ROUNDS)]


@pytest.mark.parametrize("seed", [_SEED, *_MORE])
def test_an_effect_of_a_dropped_item_begins_or_a_change_is_lost(workspace: Path, seed: int) -> None:
    rng = random.Random(seed)
    person = chaos.Person(workspace, rng)
    for start in range(40):
        words = [sys.executable, "-c", _START, str(Path(__file__).parents[1]), str(workspace), str(seed)]
        process = warm.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        kills = start < 3 and rng.random() < 0.7
        until = time.monotonic() + rng.uniform(0.2, 1.0)
        try:
            while process.poll() is None and (time.monotonic() < until or not kills) and person.saves < 40:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(rng.choice((0.02, 0.1, 0.25)))
                person.act()
            if kills and process.poll() is None:
                process.kill()
            said = process.communicate(timeout=PATIENCE)[0]
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
        assert "Traceback" not in said and "KeyError" not in said, f"seed {seed}: {said}"
        if process.returncode == 0:
            break
        assert process.returncode in (3, 4, -9), f"seed {seed}: {said}"
        if process.returncode == 3:
            assert "conflict" in said, f"seed {seed}: {said}"
            opened(str(workspace)).merge("ours")
        elif process.returncode == 4:
            person.answer()
    else:
        pytest.fail(f"seed {seed}: it does not come to its end: {said}")
    print(chaos.check(workspace, seed))
