"""SIGKILL at any moment of a run."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from properties import ROUNDS

from killing import SUBJECTS, explore

_FEW = {"items": 4, "parallel": 4, "tree": 3, "pipelined": 3, "talking": 2, "inbox": 4, "interrupted": 4}
_MANY = {"items": 20, "parallel": 8, "tree": 8, "pipelined": 8, "talking": 8, "inbox": 8, "interrupted": 8}
_EVERY = 8


def seed() -> int:
    return int(os.environ.get("SATCHEL_SEED", random.randrange(1 << 30)))


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_run_killed_at_any_moment_ends_as_an_uninterrupted_one(subject: str, tmp_path: Path) -> None:
    explore(subject, tmp_path, "seeded", seed(), _FEW[subject])


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_run_killed_at_many_moments_ends_as_an_uninterrupted_one(subject: str, tmp_path: Path) -> None:
    explore(subject, tmp_path, "seeded", seed(), _MANY[subject] * ROUNDS)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1 if ROUNDS == 1 else _EVERY))
def test_a_kill_at_any_call_loses_a_task(part: int, tmp_path: Path) -> None:
    """An eighth of the calls; with four times the rounds all of them."""
    explore("inbox", tmp_path, "every", part, _EVERY)
