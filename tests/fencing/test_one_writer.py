"""Random schedules of writers, stalls, crashes, lost answers, pruning, readers: there is one history, all the time."""

from __future__ import annotations

import os
import time

import pytest

from .model import Model, Violation, explore

FIRST = int(os.environ.get("SATCHEL_SEED") or 1)
_SECONDS = 90.0


def test_nothing_that_was_acknowledged_is_lost_in_any_schedule() -> None:
    tally = explore(range(FIRST, FIRST + 250))
    print(f"seeds from {FIRST} on: {tally}")
    assert tally["owners"] > 500 and tally["kept out"] > 20 and tally["acknowledged"] > 2500


@pytest.mark.slow
def test_nothing_that_was_acknowledged_is_lost_in_thousands_of_schedules() -> None:
    until, seed = time.monotonic() + _SECONDS, FIRST + 1_000_000
    while time.monotonic() < until:
        explore(range(seed, seed + 100))
        seed += 100
    print(f"seeds {FIRST + 1_000_000} to {seed - 1}")


def test_a_seed_is_one_schedule() -> None:
    for seed in range(FIRST, FIRST + 5):
        first, second = Model(seed), Model(seed)
        first.run()
        second.run()
        assert first.simulation.trail == second.simulation.trail


def test_a_failure_tells_its_seed_and_its_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(self: Model, *_: object) -> None:
        self._stop("as an example")

    monkeypatch.setattr(Model, "_told_durable", forgets)
    with pytest.raises(Violation, match=r"seed \d+: Violation: as an example[^$]*has it from record 1 on, epoch 1"):
        explore(range(FIRST, FIRST + 20))
