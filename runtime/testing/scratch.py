"""Runs on temporary folders: what a test gives to a function that takes a `Run`, rehearsals over a copy, and a trial
whether a framework swallows errors.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ...workspace.base import NotDone
from ...workspace.journal.records import StepCompleted
from ...workspace.store import DiskStore
from ...workspace.transfer import scratch_copy
from ..agent import Agent, agent
from ..agent import agent as make_agent
from ..api import RehearsalResult, rehearse_here
from ..api import open as open_run
from ..engine import OpenCall, current_call
from ..execution import run_async
from ..run import Run
from ..steps import current_scope

DEFINITION = "format: 1\nrun_id: test\nagent: agent.py:main\n"


def rehearse(folder: str | os.PathLike[str], agent: Agent) -> RehearsalResult:
    """Try an agent against the run in `folder`, without doing anything: see `satchel rehearse`. The folder is only
    read. For tests over folders that earlier versions of the agent have left."""
    with tempfile.TemporaryDirectory() as place:
        copy = DiskStore(place)
        scratch_copy(DiskStore(Path(folder)), copy)
        return rehearse_here(copy, agent)


@asynccontextmanager
async def fake_run(
    plan: Sequence[str] = (), *, agent: Agent | None = None, folder: str | os.PathLike[str] | None = None
) -> AsyncIterator[Run[Any]]:
    """A run that the body of `async with` has in its hands: steps, effects, `run.state` and the plan work as in an
    agent, on a temporary folder or on `folder`.

    `plan` are the texts of its items. `agent` gives the type of the state, the resources and the durability; its
    function is not called. The state belongs to a scope, as in every run: change it in `run.todo.each(work)` or
    `run.scope(name, function)`. At the end the run is closed; an error that stopped it is raised. Only for one task at
    a time. Not guaranteed: that the body is stopped when the run is paused; the next call raises then.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="satchel-test-") as made:
            async with fake_run(plan, agent=agent, folder=Path(made)) as run:
                yield run
        return
    definition = Path(folder) / "workspace.yaml"
    if not definition.exists():
        definition.write_text(DEFINITION)
    begun: asyncio.Future[tuple[Run[Any], Any]] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def hold(run: Run[Any]) -> None:
        if plan and not run.todo.items:
            await run.plan(None, list(plan))
        begun.set_result((run, current_scope.get()))
        await over.wait()

    going = asyncio.create_task(run_async(folder, replace(agent or make_agent(hold), function=hold)))
    first: list[asyncio.Future[Any]] = [going, begun]
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if begun.done():
        run, scope = begun.result()
        token = current_scope.set(scope)
        try:
            yield run
        finally:
            current_scope.reset(token)
            over.set()
            await asyncio.wait([going])
    outcome = await going
    if outcome.error is not None:
        raise outcome.error
    if not begun.done():
        raise RuntimeError(f"the run did not begin: it is {outcome.status}")


Failing = Callable[..., Awaitable[Any]]


async def assert_errors_reach(use: Callable[[Failing], Awaitable[Any]], *, error: Exception | None = None) -> None:
    """Call `use` in a run on a temporary folder with a function that raises. AssertionError if the step or the effect
    around that function is on record as done all the same: something between them has caught the error.

    `use` puts the function where your tool acts, and calls the tool as your agent does. The function takes any
    arguments and raises `error`, or a `NotDone`. What `use` raises then is no failure of the test, unless it has not
    come so far.
    """
    failure = error or NotDone("the test lets it fail")
    around: list[OpenCall | None] = []
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
        log = await asyncio.to_thread(lambda: [*open_run(place).history.log(type="step.completed")])
    if not around:
        raise AssertionError("use() has not called the function that fails") from next(iter(raised), outcome.error)
    records = [row.line.record for row in log]
    done = {(each.scope, each.key): each for each in records if isinstance(each, StepCompleted)}
    for call in around:
        if call is None:
            raise AssertionError("the tool acts outside every step and effect, so nothing about it is recorded")
        outer: OpenCall | None = call
        while outer is not None:
            counts = outer is call or outer.step.is_effect  # a step may answer with the failure of another one
            if counts and (record := done.get((outer.scope.key, outer.key))) is not None:
                raise AssertionError(
                    f"{outer.step!r} is on record as done, with the result {bytes(record.result).decode()}, but what "
                    f"it does has raised {failure!r}: something between them catches errors. Make the step of the "
                    "function that acts, below that, and not of the tool"
                )
            outer = outer.outer
