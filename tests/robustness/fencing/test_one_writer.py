"""Random schedules of writers, stalls, crashes, lost answers, pruning, readers: there is one history, all the time."""

from __future__ import annotations

import os

import pytest
from properties import ROUNDS

from . import holding
from .model import Model, Violation, explore

FIRST = int(os.environ.get("SATCHEL_SEED") or 1)
_PARTS, _SCHEDULES = ROUNDS, 200


def test_nothing_that_was_acknowledged_is_lost_in_any_schedule() -> None:
    """Fifty of them: what is planted (test_planted_faults.py) shows in these."""
    tally = explore(range(FIRST, FIRST + 50))
    print(f"seeds from {FIRST} on: {tally}")
    assert tally["owners"] > 150 and tally["kept out"] > 5 and tally["acknowledged"] > 1000
    assert tally["pruned"] > 5


def test_no_append_to_a_held_workspace_is_lost_torn_or_doubled_in_any_schedule() -> None:
    tally = holding.explore(range(FIRST, FIRST + 25))
    print(f"seeds from {FIRST} on: {tally}")
    assert tally["owners"] > 100 and tally["kept out"] > 3 and tally["appends"] > 150


@pytest.mark.slow
@pytest.mark.parametrize("part", range(_PARTS))
def test_no_append_to_a_held_workspace_is_lost_in_many_more_schedules(part: int) -> None:
    first = FIRST + 2_000_000 + part * _SCHEDULES
    print(f"seeds from {first} on: {holding.explore(range(first, first + _SCHEDULES))}")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(_PARTS))
def test_nothing_that_was_acknowledged_is_lost_in_many_more_schedules(part: int) -> None:
    first = FIRST + 1_000_000 + part * _SCHEDULES
    print(f"seeds from {first} on: {explore(range(first, first + _SCHEDULES))}")


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
