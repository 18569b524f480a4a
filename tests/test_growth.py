"""The comparison that tests of growth rely on tells a quadratic from a linear one."""

from __future__ import annotations

import time
from collections.abc import Callable

import growth
import pytest


def linear(size: int) -> Callable[[], object]:
    return lambda: sum(range(50 * size))


def quadratic(size: int) -> Callable[[], object]:
    return lambda: [sum(range(number)) for number in range(0, size, 5)]


def test_linear_work_fails() -> None:
    growth.stays_linear(linear, 1000)


def test_quadratic_work_passes() -> None:
    with pytest.raises(AssertionError, match="times as long"):
        growth.stays_linear(quadratic, 1000)


def test_a_slow_machine_makes_linear_work_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that is slow for a moment: its first measurements are a thousand times too long."""
    slow, clock, calls = [1000.0] * 5, time.thread_time, [0]

    def thread_time() -> float:
        calls[0] += 1
        return clock() + (slow.pop() if calls[0] % 2 == 0 and slow else 0.0)

    monkeypatch.setattr(growth.time, "thread_time", thread_time)
    growth.stays_linear(linear, 1000)


def test_work_too_little_to_tell_fails() -> None:
    def nothing(size: int) -> Callable[[], object]:
        return lambda: size**3

    growth.stays_linear(nothing, 1)
