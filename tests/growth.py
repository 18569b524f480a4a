"""How the time of some work grows with its size, told by a comparison: no slow machine can change it.

Both sizes are measured in turns, in CPU time of the thread, and the least time of each counts. Less than a fixed loop
takes is too little to tell.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

LARGER = 4
MOST = 8.0
"""Between `LARGER` and its square: what linear and what quadratic work takes more."""

_ROUNDS, _TRIES = 3, 5


def stays_linear(make: Callable[[int], Callable[[], object]], size: int) -> None:
    """Fails if what `make(size)` returns takes much more than `LARGER` times as long for `LARGER * size`.

    `make` is not measured. Choose `size` so that what may not happen (a pattern that looks ahead to the end from every
    place) costs more there than anything else.
    """
    growth = []
    for _ in range(_TRIES):
        small, large, floor = (
            min(times)
            for times in zip(
                *((_time(make(size)), _time(make(LARGER * size)), _time(_floor)) for _ in range(_ROUNDS)), strict=True
            )
        )
        growth.append(large / max(small, floor))
        if growth[-1] < MOST:
            return
    raise AssertionError(f"{LARGER} times as much takes {min(growth):.1f} times as long, at {size}")


def _time(work: Callable[[], object]) -> float:
    gc.disable()  # a collection costs what the whole process holds
    try:
        began = time.thread_time()
        work()
        return time.thread_time() - began
    finally:
        gc.enable()


def _floor() -> int:
    return sum(range(10_000))
