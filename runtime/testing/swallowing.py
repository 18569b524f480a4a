"""Find out whether errors of a tool reach the effect around it, or a framework between them turns them into text."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ...workspace.base import NotDone
from ...workspace.journal.records import StepCompleted
from ..agent import agent
from ..control import open as open_run
from ..engine import Call, current_call
from ..execution import run_async
from ..run import Run
from .scratch import DEFINITION

Failing = Callable[..., Awaitable[Any]]


async def assert_errors_reach(use: Callable[[Failing], Awaitable[Any]], *, error: Exception | None = None) -> None:
    """Call `use` in a run on a temporary folder with a function that raises. AssertionError if the step or the effect
    around that function is on record as done all the same: something between them has caught the error.

    `use` puts the function where your tool acts, and calls the tool as your agent does. The function takes any
    arguments and raises `error`, or a `NotDone`. What `use` raises then is no failure of the test, unless it has not
    come so far.
    """
    failure = error or NotDone("the test lets it fail")
    around: list[Call | None] = []
    raised: list[Exception] = []

    async def fail(*args: Any, **kwargs: Any) -> Any:
        around.append(current_call.get())
        raise failure

    async def main(run: Run[Any]) -> None:
        try:
            await use(fail)
        except Exception as error:
            raised.append(error)

    with tempfile.TemporaryDirectory(prefix="satchel-test-") as place:
        (Path(place) / "workspace.yaml").write_text(DEFINITION)
        outcome = await run_async(place, agent(main))
        log = await asyncio.to_thread(lambda: [*open_run(place).log(type="step.completed")])
    if not around:
        raise AssertionError("use() has not called the function that fails") from next(iter(raised), outcome.error)
    records = [row.line.record for row in log]
    done = {(each.scope, each.key): each for each in records if isinstance(each, StepCompleted)}
    for call in around:
        if call is None:
            raise AssertionError("the tool acts outside every step and effect, so nothing about it is recorded")
        outer: Call | None = call
        while outer is not None:
            counts = outer is call or outer.step.is_effect  # a step may answer with the failure of another one
            if counts and (record := done.get((outer.scope.key, outer.key))) is not None:
                raise AssertionError(
                    f"{outer.step!r} is on record as done, with the result {bytes(record.result).decode()}, but what "
                    f"it does has raised {failure!r}: something between them catches errors. Make the step of the "
                    "function that acts, below that, and not of the tool"
                )
            outer = outer.outer
