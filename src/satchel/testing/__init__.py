"""Test an agent: its steps, its crashes, what it does with errors, and open runs under its new code.

call, MemoryPartial    call a step or an effect without a run, and see what it streams
fake_run               a run that a test has in its hands, on a temporary folder
crash_after            crash a run when it has written so many records, and resume it
assert_survives        crash it at each point, and compare what it has done then; returns a `Survived`
assert_errors_reach    nothing between a step and what it does catches errors
rehearse               try new code over a copy of an open run, without doing anything

    async def test_a_step():
        assert await call(summarise, "a long text") == "a text"

    async def test_the_plan():
        async with fake_run(["Ada"]) as run:
            await run.todo.each(work)

A pytest plugin offers the fixtures `satchel_workspace` and `satchel_run`.
"""

from ..workspace import deferred

if not deferred(__name__):
    from .scratch import MemoryPartial, assert_errors_reach, call, fake_run, rehearse
    from .surviving import Survived, assert_survives, crash_after

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
