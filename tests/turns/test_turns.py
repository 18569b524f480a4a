"""A person, a runtime and a crash take turns over one workspace with a tree of agents.

Nothing that a person wrote is lost, nothing acknowledged is lost, no effect is doubled.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from .machine import Turns

_SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


def test_whatever_turns_are_taken_nothing_is_lost_and_nothing_doubled() -> None:
    run_state_machine_as_test(Turns, settings=settings(_SETTINGS, max_examples=60, stateful_step_count=20))
