"""SIGKILL at any moment of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from properties import ROUNDS, seed

from killing import SUBJECTS, explore

_EVERY = 8


@pytest.mark.parametrize("subject", ["items", "inbox"])
def test_a_run_killed_at_any_moment_ends_as_an_uninterrupted_one(subject: str, tmp_path: Path) -> None:
    explore(subject, tmp_path, "seeded", seed(), 2)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_run_killed_at_many_moments_ends_as_an_uninterrupted_one(subject: str, tmp_path: Path) -> None:
    explore(subject, tmp_path, "seeded", seed(), (10 if subject == "items" else 6) * ROUNDS)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("part", range(1 if ROUNDS == 1 else _EVERY))
def test_a_kill_at_any_call_loses_a_task(part: int, tmp_path: Path) -> None:
    """An eighth of the calls; with four times the rounds all of them."""
    explore("inbox", tmp_path, "every", part, _EVERY)
