"""What each tier tries of what has many cases.

The fast tier: some of the pairs, and a tenth of the examples of a property. The slow tier: all of these, the examples
by `pytest --hypothesis-profile=full`, and some rounds of each soak and exploration. `SATCHEL_ROUNDS` times as many
rounds are for those who change what these are about (`make soak`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, core, settings
from hypothesis.internal.conjecture import providers

FULL, _TENTH = "full", "tenth"
ROUNDS = int(os.environ.get("SATCHEL_ROUNDS") or 1)


def load() -> None:
    """For conftest.py, before modules with properties are imported. pytest's option has the last word.

    The examples of a property are the same at every run, whatever else is collected. `SATCHEL_SEED` takes others.
    """
    seed = os.environ.get("SATCHEL_SEED")
    if seed:
        core.global_force_seed = int(seed)
    # Hypothesis tries constants of all modules that are imported, and has no setting against that.
    providers.is_local_module_file = lambda path: False  # type: ignore[assignment]
    unhurried = settings(
        deadline=None, database=None, derandomize=not seed, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.register_profile(FULL, unhurried, max_examples=100)
    settings.register_profile(_TENTH, unhurried, max_examples=10)
    settings.load_profile(_TENTH)


def examples(full: int) -> settings:
    """Settings of a property that is tried more or less often than 100 times."""
    return settings(max_examples=full if settings.get_current_profile_name() == FULL else max(5, full // 10))


def pairs(first: Iterable[Any], second: Iterable[Any], *, every: int) -> list[Any]:
    """Parameters for all pairs. The fast tier tries one of `every`, in which each of `first` and
    `second` comes if that is no more than `second` has."""
    others = [*second]
    return [
        pytest.param(one, other, marks=() if (row + column) % every == 0 else pytest.mark.slow)
        for row, one in enumerate(first)
        for column, other in enumerate(others)
    ]
