"""A person, a runtime and a crash take turns over one workspace with a tree of agents.

Nothing that a person wrote is lost, nothing that was recorded is lost, and no effect is doubled.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from properties import ROUNDS

from .machine import Turns

_SEED = int(os.environ.get("SATCHEL_SEED") or 1)
_PARTS = ROUNDS


def test_whatever_turns_are_taken_nothing_is_lost_and_nothing_doubled() -> None:
    _take_turns(Turns, 2, derandomize=True)


class _InParallel(Turns):
    parallel = 3


def test_items_in_parallel_take_turns_with_people_and_crashes() -> None:
    _take_turns(_InParallel, 2, derandomize=True)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("machine", [Turns, _InParallel])
def test_many_other_turns(machine: type[Turns], part: int) -> None:
    seed = _SEED + part
    print(f"seed {seed}")
    # `hypothesis.seed` is for functions; the machine's own test takes it from here.
    seeded = type("Turns", (machine,), {"_hypothesis_internal_use_seed": seed})
    _take_turns(seeded, 25, print_blob=True)


def _take_turns(machine: type[Turns], examples: int, **options: bool) -> None:
    unhurried = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(
        machine, settings=settings(unhurried, max_examples=examples, stateful_step_count=15, **options)
    )
