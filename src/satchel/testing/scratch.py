"""What a test of an agent calls: a step or an effect as a plain function; on a temporary folder, a function that takes
a `Run`; a rehearsal over a copy; and a trial whether a framework swallows errors.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from ..runtime.agent import Agent, Partial, R, Step, agent, current_scope
from ..runtime.agent import agent as make_agent
from ..runtime.api import RehearsalResult, rehearse_here
from ..runtime.api import open as open_run
from ..runtime.engine import OpenCall, current_call
from ..runtime.execution import Run, run_async
from ..workspace.base import NotDone, UsageError
from ..workspace.journal import StepCompleted
from ..workspace.store import DiskStore
from ..workspace.transfer import scratch_copy
from ..workspace.views import RecoveryMarker

KEY = "test-key"
"""The idempotency key that an effect gets, unless the test gives another."""


class MemoryPartial(Partial):
    """A `Partial` without a file. `text` is what the step has written, behind the `recovered` text of an earlier
    attempt; `pieces` are its writes. A message arrives after so many of them: `interrupted_after`."""

    def __init__(
        self,
        recovered: str | None = None,
        marker: RecoveryMarker | None = None,
        *,
        interrupted_after: int | None = None,
    ):
        self._recovered, self.marker, self.ended, self.was_interrupted = recovered, marker, False, False
        self._is_continued, self.has_restarted = not recovered, False
        self.pieces: list[str] = []
        self._hears = lambda: interrupted_after is not None and len(self.pieces) >= interrupted_after

    async def write(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a partial is text, not {type(text).__qualname__}")
        if not self._is_continued:
            self._restart()
        self.pieces.append(text)

    @property
    def has_new(self) -> bool:
        return bool(self.pieces)

    @property
    def text(self) -> str:
        self._is_continued = True
        return (self._recovered or "") + "".join(self.pieces)


async def call(step: Step[..., R], /, *args: Any, **kwargs: Any) -> R:
    """Call the function of a step or an effect once, in this task, and return its result. Nothing is recorded, retried
    or verified.

    What Satchel would fill in may be given by name; otherwise a `Partial` is a new `MemoryPartial`, and a `Key` is
    "test-key". UsageError for a parameter that needs a run, and for what is neither step nor effect.
    """
    if not isinstance(step, Step):
        name = getattr(step, "__name__", step)
        raise UsageError(f"{name} is neither a step nor an effect", remedy="call it as it is")
    shape, given = step.shape, dict(kwargs)
    if shape.partial:
        given.setdefault(shape.partial, MemoryPartial())
    if shape.key:
        given.setdefault(shape.key, KEY)
    if shape.run and shape.run not in given:
        raise UsageError(
            f"{step.name} needs a run", remedy=f"give it one: call({step.name}, ..., {shape.run}=run), see fake_run"
        )
    injected = {name: given.pop(name) for name in (shape.partial, shape.key, shape.run) if name}
    positional, named = shape.unbind(shape.bind(step.name, args, given), injected)
    found: Any = step.function(*positional, **named)
    if step.is_generator:
        out = injected.get(shape.partial or "") or MemoryPartial()
        async with aclosing(found):
            async for part in found:
                await out.write(part)
        return cast(R, out.text)
    result: R = await found if inspect.isawaitable(found) else found
    return result


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
