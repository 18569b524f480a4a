"""The numbers of many runs: what looks find counts once, whatever is looked at again, moved, copied or replaced."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

import satchel
from satchel.runtime.status import Overview
from satchel.runtime.supervision import Census, RunFigures, SightedRun, figures_of
from satchel.runtime.supervision.census import COUNTED
from satchel.workspace.inspect import glance
from satchel.workspace.store import open_store

from .supervised import make

AGENT = """
from satchel import agent, step

@step
def one() -> int:
    return 1

@agent
async def main(run):
    run.spend(tokens=10, usd=0.25)
    await one()
    await run.ask("Go on?", wait_for=0)
"""

_LATER = "2999-01-01T00:00:00.000Z"


def figures(run: str, seq: int, **counts: float) -> RunFigures:
    return RunFigures(state="waiting", run=run, run_id=run, seq=seq, **counts)  # type: ignore[arg-type]


def look(census: Census, *found: RunFigures, root: str = "") -> None:
    census.looked(root, 0.1, 1.0, [SightedRun(each.run, each) for each in found])


def steps(census: Census) -> float:
    return census.numbers().counts["steps"]


def test_what_was_there_before_counts_as_done_now() -> None:
    census = Census()
    look(census, figures("a", 10, steps=5))
    assert steps(census) == 0, "a restart of `serve` would repeat all of the past"
    look(census, figures("a", 12, steps=7), figures("b", 10, steps=5, starts=1))
    assert steps(census) == 2, "b was moved here"
    look(census, figures("a", 12, steps=7), figures("c", 9, steps=3, starts=1, opened_at=_LATER))
    assert steps(census) == 5, "c has begun since"


def test_a_run_that_was_new_counts_from_its_second_start() -> None:
    """Its first start has ended before anyone has read it, and gave it the nonce that tells it from others."""
    census = Census()
    look(census, RunFigures(state="new", run="a-1", run_id="a-1"))
    look(census, RunFigures(state="waiting", run="nonce", run_id="a-1", seq=9, starts=2, steps=4))
    assert steps(census) == 4 and census.numbers().counts["starts"] == 2


def test_a_fork_counts_what_another_run_has_done() -> None:
    census = Census()
    look(census)
    fork = RunFigures(state="paused", run="f", run_id="f", seq=9, steps=5, starts=1, opened_at=_LATER, is_fork=True)
    look(census, fork)
    assert steps(census) == 0


def test_a_backup_asks_and_counts_once_more() -> None:
    census = Census()
    run = RunFigures(state="waiting", run="a", seq=4, questions=1, asked_at=_LATER)
    look(
        census, run, RunFigures(state="backup", run="a", seq=4, questions=1, asked_at=_LATER), RunFigures(state="moved")
    )
    told = census.numbers()
    assert told.states == {"waiting": 1, "backup": 1, "moved": 1} and told.questions == 1


@pytest.mark.parametrize("seed", range(20))
def test_a_counter_falls_or_counts_twice(seed: int) -> None:
    """Runs work on, are removed, moved and put back, and old looks come late."""
    chance = random.Random(seed)
    census, done = Census(), dict.fromkeys("abcdef", 0)
    look(census, *(figures(run, 0) for run in done))
    past = {run: [figures(run, 0)] for run in done}
    before = 0.0
    for _ in range(60):
        run = chance.choice("abcdef")
        done[run] += (new := chance.randrange(3))
        seq = past[run][-1].seq + new
        past[run].append(figures(run, seq, steps=done[run]))
        there = [chance.choice(past[each][-2:]) for each in done if chance.random() < 0.7]
        look(census, *there, root=chance.choice(("", "other")))
        assert before <= steps(census) <= sum(done.values())
        before = steps(census)
    look(census, *(each[-1] for each in past.values()))
    assert steps(census) == sum(done.values())


def test_the_past_of_runs_that_come_and_go_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.runtime.supervision.census._GONE", 5)
    census = Census()
    for number in range(50):
        look(census, figures(f"run-{number}", 3, steps=1))
    assert len(census._counted) <= 10


def test_a_process_is_ready_although_it_does_not_look() -> None:
    census = Census(roots=2)
    assert not census.is_ready
    look(census, root="a")
    assert not census.is_ready, "it has not seen the other root"
    look(census, root="b")
    assert census.is_ready
    census.looked("b", 0.0, 1e-9, [])
    assert not census.is_ready


def test_runs_of_several_roots_are_mixed_up() -> None:
    census = Census(roots=2, clock=lambda: 1000.0)
    waiting = RunFigures(state="waiting", run="a", seq=1, questions=2, asked_at="1970-01-01T00:10:00.000Z")
    running = RunFigures(state="running", run="b", seq=1, opened_at="1970-01-01T00:16:00.000Z")
    census.looked("a", 1.0, 1.0, [SightedRun("a", waiting, due_since=900.0), SightedRun("x", None)])
    census.looked("b", 0.5, 1.0, [SightedRun("b", running), SightedRun("c", figures("c", 1), 950.0, is_taken=True)])
    told = census.numbers()
    assert told.states == {"waiting": 1, "damaged": 1, "running": 2}
    assert (told.due, told.due_age, told.lease_age, told.questions, told.question_age) == (2, 100.0, 40.0, 2, 400.0)
    assert (told.looks, told.look_seconds) == (2, 1.5) and told.look_age is not None
    assert Census(knows_due=False).numbers().due is None


def test_an_overview_and_the_run_itself_say_different_numbers(tmp_path: Path) -> None:
    folder = make(tmp_path / "runs" / "letters", AGENT)
    census = Census(knows_due=False)
    overview = Overview(tmp_path / "runs", census=census)
    overview.look()
    assert census.numbers().states == {"new": 1}
    assert satchel.run(folder).status == "waiting"
    overview.look(now=True)
    told = census.numbers()
    assert told.states == {"waiting": 1} and told.questions == 1
    assert told.counts == {**dict.fromkeys(COUNTED, 0), "starts": 1, "steps": 1, "tokens": 10, "usd": 0.25}
    overview.look(now=True)
    assert census.numbers().counts == told.counts, "read twice"
    found = figures_of(glance(open_store(str(folder))).moment)
    assert {name: getattr(found, name) for name in COUNTED} == told.counts


def test_a_run_at_work_shows_nothing_until_it_stops(tmp_path: Path) -> None:
    """A look does not read what a process has: the census does, when it is asked to."""
    folder = make(tmp_path / "letters", AGENT)
    census = Census()
    look(census, RunFigures(state="new", run="letters-1", run_id="letters-1"))
    assert satchel.run(folder).status == "waiting"
    before = SightedRun(str(folder), RunFigures(state="new", run="letters-1", run_id="letters-1"), is_taken=True)
    census.looked("", 0.1, 1.0, [before])
    end = time.monotonic() + 60
    while not steps(census) and time.monotonic() < end:
        census.refresh()
    census.looked("", 0.1, 1.0, [before])
    assert steps(census) == 1 and census.numbers().states == {"running": 1}
