"""What each tier tries of what has many cases.

The fast tier: some of the cases, and a tenth of the examples of a property. The slow tier: the other kinds of cases,
half of the examples by `pytest --hypothesis-profile=full`, and some rounds of each soak and exploration. `make soak`:
what repeats those with other numbers, too, and `SATCHEL_ROUNDS` times as many rounds and examples, for those who change
what they are about.

Marked `long` is what takes long: it begins first, so that at the end no worker has one more while others have nothing.

`@pytest.mark.sampled(every=5)` leaves the first of five cases of a test in the fast tier, and with `rest="soak"` the
second in the slow tier and the others to `make soak`. Marked `soak` is what only that does.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, core, settings
from hypothesis.internal.conjecture import providers

FULL, _TENTH = "full", "tenth"
ROUNDS = int(os.environ.get("SATCHEL_ROUNDS") or 1)


def seed() -> int:
    """For what a test draws by chance: the same at every run, so that CI tells of the change; or `SATCHEL_SEED`.

    In `make soak`, which has more rounds, another one each time. A test that fails shows it.
    """
    number = int(os.environ.get("SATCHEL_SEED") or (random.randrange(1 << 30) if ROUNDS > 1 else 1))
    print(f"SATCHEL_SEED={number}")
    return number


def load() -> None:
    """For conftest.py, before modules with properties are imported. pytest's option has the last word.

    The examples of a property are the same at every run, whatever else is collected. `SATCHEL_SEED` takes others.
    """
    chosen = os.environ.get("SATCHEL_SEED")
    if chosen:
        core.global_force_seed = int(chosen)
    # Hypothesis tries constants of all modules that are imported, and has no setting against that.
    providers.is_local_module_file = lambda path: False  # type: ignore[assignment]
    unhurried = settings(
        deadline=None, database=None, derandomize=not chosen, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.register_profile(FULL, unhurried, max_examples=50 * ROUNDS)
    settings.register_profile(_TENTH, unhurried, max_examples=10)
    settings.load_profile(_TENTH)


def spread(items: list[pytest.Item]) -> None:
    """For conftest.py: put each case of a test into its tier, and what takes long before the others."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    numbers: Counter[tuple[object, str]] = Counter()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is not None:
            test = (item.parent, getattr(item, "originalname", item.name))
            place = numbers[test] % sampled.kwargs["every"]
            numbers[test] += 1
            if place > 0:
                item.add_marker("slow")
            if place > 1 and sampled.kwargs.get("rest") == "soak":
                item.add_marker("soak")
        if item.get_closest_marker("soak"):
            item.add_marker("slow")


def examples(full: int) -> settings:
    """Settings of a property that is tried more or less often than 100 times."""
    is_full = settings.get_current_profile_name() == FULL
    return settings(max_examples=full * ROUNDS // 2 if is_full else max(5, full // 10))


def pairs(first: Iterable[Any], second: Iterable[Any], *, every: int) -> list[Any]:
    """Parameters for all pairs. The fast tier tries one of `every`, in which each of `first` and
    `second` comes if that is no more than `second` has."""
    others = [*second]
    return [
        pytest.param(one, other, marks=() if (row + column) % every == 0 else pytest.mark.slow)
        for row, one in enumerate(first)
        for column, other in enumerate(others)
    ]
