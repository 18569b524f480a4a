"""A person, a runtime and a crash take turns over one workspace with a tree of agents.

Nothing that a person wrote is lost, nothing acknowledged is lost, and no effect is doubled.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from .machine import Turns

_UNHURRIED = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


def test_whatever_turns_are_taken_nothing_is_lost_and_nothing_doubled() -> None:
    run_state_machine_as_test(
        Turns, settings=settings(_UNHURRIED, max_examples=120, stateful_step_count=15, derandomize=True)
    )


@pytest.mark.slow
def test_many_other_turns() -> None:
    """`SATCHEL_TURNS=SEED` takes others."""
    chosen = int(os.environ.get("SATCHEL_TURNS", "1"))
    print(f"SATCHEL_TURNS={chosen}")
    run_state_machine_as_test(
        _seeded(chosen), settings=settings(_UNHURRIED, max_examples=100, stateful_step_count=15, print_blob=True)
    )


def _seeded(number: int) -> type[Turns]:
    """`seed` is for functions; the machine's own test takes it from here."""
    return type("Turns", (Turns,), {"_hypothesis_internal_use_seed": number})
