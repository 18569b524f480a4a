"""Run the agent of a workspace in this process, and return the outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from msgspec import field
from msgspec.structs import fields

from ...workspace.base import AgentError, UsageError, arguments
from ...workspace.inbound.edits import not_settled
from ...workspace.inbound.inbox import inbox
from ...workspace.inspect import Look
from ...workspace.journal.records import Failure, Output
from ...workspace.state import Pause
from ...workspace.todo import Progress
from ..agent import Agent
from ..execution import After, Outcome, Start, running
from ..live import Interruption, Watch
from .place import Place
from .questions import OpenQuestion, questions_of


class Wish(NamedTuple):
    """The options of a run. See `Handle.run` and `Handle.resume`."""

    agent: Agent | None
    watch: Watch | None
    wake: bool
    accept_drift: bool
    drain_timeout: float | None
    from_checkpoint: bool
    take_over: bool
    adopt: bool
    input: Mapping[str, Any] | None = None


class Ended(Outcome):
    """How a run stopped, what this call has added to it, and what is on record now.

    In addition to an `Outcome`: `steps` that this call has recorded, in `seconds`; `items` of the plan, finished and
    total; `outputs` by path; `failure`, the recorded error of the agent; `reason` and `pause`, why it stopped;
    `questions`, those that are open; `waiting`, files in the inbox of a run that had completed before; `wants_merge`: a
    file and the run conflict, and a person must resolve that before it can continue.
    """

    url: str = ""
    run_id: str = ""
    steps: int = 0
    seconds: float = 0.0
    items: Progress = field(default_factory=lambda: Progress(0, 0))
    outputs: dict[str, Output] = field(default_factory=dict)
    failure: Failure | None = None
    reason: str = ""
    pause: Pause | None = None
    questions: list[OpenQuestion] = field(default_factory=list)
    waiting: int = 0
    wants_merge: bool = False


def run(place: Place, wish: Wish, args: tuple[Any, ...] = ()) -> Ended:
    """Run it until it stops."""
    arguments.no_loop("resume" if wish.wake else "run")
    call = _Call(place, wish, args)
    with no_exit(place):
        return call.ended(running.with_signals(call.start, call.admit))


async def run_async(place: Place, wish: Wish, args: tuple[Any, ...] = ()) -> Ended:
    """The same in a loop that is running, which no look blocks."""
    call = await asyncio.to_thread(_Call, place, wish, args, shares_loop=True)
    with no_exit(place):
        after = await running.until_stop(call.start, call.admit)
    return await asyncio.to_thread(call.ended, after)


class _Call:
    """One call of `run`, from its arguments to its result."""

    def __init__(self, place: Place, wish: Wish, args: tuple[Any, ...], *, shares_loop: bool = False):
        self._place, self._wish = place, wish
        store = place.store_of_a_run()
        self.start = Start(
            store=store, interruption=Interruption(), args=args, shares_loop=shares_loop, **wish._asdict()
        )
        self._began, self._steps = time.monotonic(), 0

    def admit(self, seen: Look) -> None:
        if self._wish.wake and seen.moment.is_new:
            raise UsageError(
                "nothing to resume yet",
                path=self.start.store.url,
                why="this run has never started",
                remedy=f"start it with `{self._place.command('run')}`",
            )
        self._steps = seen.moment.usage.steps

    def ended(self, after: After) -> Ended:
        store, (outcome, moment) = self.start.store, after
        status, entered = outcome.status, outcome.entered
        ended = Ended(**{each.name: getattr(outcome, each.name) for each in fields(Outcome)})
        ended.url, ended.run_id, ended.seconds = store.url, moment.run_id, time.monotonic() - self._began
        ended.steps = moment.usage.steps - self._steps
        ended.items, ended.outputs = moment.root.plan.progress, moment.outputs
        ended.failure = moment.error if status == "failed" else None
        ended.reason, ended.pause = moment.reason, moment.pause
        ended.questions = questions_of(moment, self._place)
        ended.waiting = len(inbox.waiting(store, moment)) if status == "completed" and not entered else 0
        ended.wants_merge = status in ("paused", "failed") and bool(not_settled(store, moment))
        return ended


@contextmanager
def no_exit(place: Place) -> Iterator[None]:
    """An agent that ends the process is wrong, and must not end the caller's."""
    try:
        yield
    except SystemExit as error:
        raise AgentError(
            f"the agent ended the process (sys.exit({error.code!r}))",
            why="the run can't record anything after that, as in a crash",
            remedy=f"let it raise an exception or return; `{place.command('resume')}` continues from its last step",
        ) from error
