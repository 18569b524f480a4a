"""SIGKILL at any moment of a run."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from killing import SUBJECTS, explore

_FEW = {"items": 4, "parallel": 4, "tree": 3, "pipelined": 3, "talking": 2, "inbox": 4, "interrupted": 4}
_MANY = {"items": 50, "parallel": 50, "tree": 60, "pipelined": 60, "talking": 40, "inbox": 60, "interrupted": 50}


def seed() -> int:
    return int(os.environ.get("SATCHEL_SEED", random.randrange(1 << 30)))


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_run_killed_at_any_moment_ends_as_an_uninterrupted_one(subject: str, tmp_path: Path) -> None:
    explore(subject, tmp_path, "seeded", seed(), _FEW[subject])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subject", "part"), [*((each, 0) for each in SUBJECTS), *(("items", 1 + n) for n in range(3))]
)
def test_a_run_killed_at_many_moments_ends_as_an_uninterrupted_one(subject: str, part: int, tmp_path: Path) -> None:
    explore(subject, tmp_path, "seeded", seed() + part, _MANY[subject])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_a_kill_at_any_call_loses_a_task(part: int, tmp_path: Path) -> None:
    explore("inbox", tmp_path, "every", part, 4)
