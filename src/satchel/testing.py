"""Test an agent: its steps, its crashes, what it does with errors, and open runs under its new code.

A pytest plugin offers the fixtures `satchel_workspace` and `satchel_run`.
"""

from .runtime.testing import (
    MemoryPartial,
    Survived,
    assert_errors_reach,
    assert_survives,
    call,
    crash_after,
    fake_run,
    rehearse,
)

__all__ = [
    "MemoryPartial",
    "Survived",
    "assert_errors_reach",
    "assert_survives",
    "call",
    "crash_after",
    "fake_run",
    "rehearse",
]
