"""What is written behind nobody's back: in order for each path, and failures are told."""

from __future__ import annotations

import threading

import pytest
from waits import PATIENCE

from satchel.workspace.views.guarded_files import AtOnce, InThreads


@pytest.fixture
def behind() -> object:
    made = InThreads(8)
    yield made
    made.close()


def test_jobs_of_one_path_come_one_after_another_in_their_order(behind: InThreads) -> None:
    done: list[int] = []
    gate = threading.Event()

    def job(number: int) -> None:
        if number == 0:
            gate.wait(PATIENCE)
        done.append(number)

    for number in range(50):
        behind.do("a", lambda number=number: job(number))  # type: ignore[misc]
    assert not behind.is_idle
    gate.set()
    behind.wait()
    assert done == [*range(50)] and behind.is_idle


def test_one_path_does_not_wait_for_another(behind: InThreads) -> None:
    gate, other = threading.Event(), threading.Event()
    behind.do("a", lambda: gate.wait(PATIENCE))
    behind.do("b", other.set)
    assert other.wait(PATIENCE)
    assert not behind.is_idle
    gate.set()
    behind.wait()


def test_many_that_wait_for_one_path_leave_no_thread_stuck(behind: InThreads) -> None:
    gate = threading.Event()
    done: list[str] = []
    for path in ("a", "b"):
        behind.do(path, lambda: gate.wait(PATIENCE))
        for _ in range(40):
            behind.do(path, lambda path=path: done.append(path))  # type: ignore[misc]
    gate.set()
    behind.wait()
    assert sorted(done) == ["a"] * 40 + ["b"] * 40


def test_a_failure_is_told_by_the_next_call_and_by_waiting(behind: InThreads) -> None:
    def fails() -> None:
        raise OSError("no")

    behind.do("a", fails)
    with pytest.raises(OSError, match="no"):
        behind.wait()
    with pytest.raises(OSError, match="no"):
        behind.do("b", lambda: None)


def test_whoever_wants_to_know_is_told_when_nothing_is_under_way(behind: InThreads) -> None:
    told, gate = threading.Event(), threading.Event()
    states: list[bool] = []
    behind.on_idle = lambda: (states.append(behind.is_idle), told.set())  # type: ignore[func-returns-value, assignment, return-value]
    behind.do("a", lambda: gate.wait(PATIENCE))
    behind.do("b", lambda: None)
    assert not told.is_set()
    gate.set()
    assert told.wait(PATIENCE) and states == [True]


def test_what_comes_after_the_end_is_refused_and_nobody_waits_for_it() -> None:
    behind = InThreads(8)
    behind.close()
    with pytest.raises(RuntimeError):
        behind.do("a", lambda: None)
    behind.wait()
    assert behind.is_idle


def test_at_once_is_at_once() -> None:
    done: list[int] = []
    at_once = AtOnce()
    at_once.do("a", lambda: done.append(1))
    assert done == [1] and at_once.is_idle
    at_once.wait()
    at_once.close()
