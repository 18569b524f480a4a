"""When a checkpoint is due."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from satchel.workspace.formats.definition import Checkpoints
from satchel.workspace.lifecycle.workspace import FETCHED_BYTES, REREAD_BYTES, Due


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_journal_outgrows_the_last_checkpoint_unnoticed(clock: Clock) -> None:
    due, growth = Due(False, clock=clock), Checkpoints("growth")
    assert due.why(growth, REREAD_BYTES - 1) is None
    assert due.why(growth, REREAD_BYTES) == "growth"
    due.saved(3 * REREAD_BYTES, REREAD_BYTES, clock.now)
    assert due.why(growth, 4 * REREAD_BYTES - 1) is None, "what is written stays in proportion to the journal"
    assert due.why(growth, 4 * REREAD_BYTES) == "growth"


def test_in_a_bucket_more_is_fetched_than_half_of_it(clock: Clock) -> None:
    due = Due(True, size=8 * FETCHED_BYTES, clock=clock)
    assert due.why(Checkpoints(), 4 * FETCHED_BYTES - 1) is None
    assert due.why(Checkpoints(), 4 * FETCHED_BYTES) == "growth"


def test_processes_that_die_young_let_the_journal_grow_for_ever(clock: Clock) -> None:
    assert Due(False, behind=REREAD_BYTES - 10, clock=clock).why(Checkpoints(), 9) is None
    assert Due(False, behind=REREAD_BYTES - 10, clock=clock).why(Checkpoints(), 10) == "growth"
    assert Due(False, behind=100, age=601, clock=clock).why(Checkpoints(), 0) == "time"


def test_one_that_is_wanted_by_milestones_leaves_openings_without_a_bound(clock: Clock) -> None:
    due, milestones = Due(False, clock=clock), Checkpoints("milestone")
    assert due.why(milestones, 15 * REREAD_BYTES, item_ended=True) is None
    assert due.why(milestones, 16 * REREAD_BYTES) == "growth"


def test_a_stop_by_force_costs_more_than_the_time_that_is_set(clock: Clock) -> None:
    due, often = Due(False, clock=clock), Checkpoints(60.0)
    clock.now += 59.9
    assert due.why(often, 100) is None
    clock.now += 0.1
    assert due.why(often, 100) == "time"
    due.saved(1000, 100, clock.now)
    clock.now += 1000
    assert due.why(often, 100) is None, "nothing has happened since"
    assert due.why(often, 101) == "time"


def test_checkpoints_after_each_item_come_after_something_else(clock: Clock) -> None:
    due, each = Due(False, clock=clock), Checkpoints("item")
    assert due.why(each, 100) is None
    assert due.why(each, 100, item_ended=True) == "item"
    assert due.why(Checkpoints("growth"), 100, item_ended=True) is None


@pytest.mark.parametrize("wanted", [Checkpoints("item"), Checkpoints(0.0)])
def test_a_large_state_is_written_all_the_time(clock: Clock, wanted: Checkpoints) -> None:
    due = Due(False, clock=clock)
    began, clock.now = clock.now, clock.now + 0.5
    due.saved(1000, 0, began)
    clock.now += 9.9
    assert due.why(wanted, 100, item_ended=True) is None, "at most a twentieth of the time"
    clock.now += 0.1
    assert due.why(wanted, 100, item_ended=True) is not None
