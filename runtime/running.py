"""Runs an agent over a workspace in this process, from opening to stop."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ..workspace import opening
from ..workspace.errors import SatchelError, StorageFailed
from ..workspace.looking import Look, define, look
from ..workspace.record import Doubt, EndStatus
from ..workspace.report import Report
from ..workspace.store import Store, open_store
from .agent import Agent, load
from .codec import Codec, encode
from .context import Context, Watch
from .failure import describe, said
from .interruption import Interruption
from .run import Run
from .session import Session, publish_schemas


@dataclass(slots=True)
class Outcome:
    """How a run stopped, and what it did not have to do again."""

    status: EndStatus
    report: Report
    result: Any = None
    error: BaseException | None = None
    doubts: list[Doubt] = field(default_factory=list)  # what a person is asked
    answered: int = 0  # calls that were answered from the record
    recovered: int = 0  # characters of streamed answers that were continued
    skipped: int = 0  # items that were finished before
    open_items: int = 0
    noticed: list[str] = field(default_factory=list)  # edits that came while it was running
    until: str = ""  # when a sleeping run is to wake: UTC, ISO 8601
    entered: bool = True  # the agent was called; if not, it had completed before, or it sleeps on


def run(
    workspace: str | os.PathLike[str] | Store, agent: Agent | None = None, *, watch: Watch | None = None,
    wake: bool = False,
) -> Outcome:  # fmt: skip
    """Run the agent of a workspace until it completes, fails, or needs a person. Continues where it stopped.

    `workspace` is a folder, or a store. `agent` takes the place of the one that workspace.yaml names. A sleeping run
    whose time has not come is left alone, and its outcome is `sleeping` again, unless `wake` is given. Errors of
    the agent are in the outcome; a workspace that can't be opened raises a SatchelError, and so does a failing disk.
    """

    async def with_signals() -> Outcome:
        interruption = Interruption()
        with interruption.watched():
            return await _run(workspace, agent, watch, interruption, wake)

    return asyncio.run(with_signals())


async def run_async(
    workspace: str | os.PathLike[str] | Store, agent: Agent | None = None, *, watch: Watch | None = None,
    wake: bool = False,
) -> Outcome:  # fmt: skip
    """`run`, in a loop that is running already, whose owner handles signals. If the task is cancelled, the run is left
    paused, with everything written, and the cancellation goes on."""
    return await _run(workspace, agent, watch, Interruption(), wake)


async def _run(
    workspace: str | os.PathLike[str] | Store, agent: Agent | None, watch: Watch | None, interruption: Interruption,
    wake: bool,
) -> Outcome:  # fmt: skip
    store = open_store(os.fspath(workspace)) if isinstance(workspace, str | os.PathLike) else workspace
    seen = look(store)
    if not wake and (asleep := _asleep(seen)):
        return asleep
    report = Report()

    def check_data(path: str, data: Any) -> None:
        """Of a sub-agent the type is known only when it is spawned."""
        if path:
            return
        try:
            kind = (agent or load(store, define(store).agent)).state
        except Exception:
            return  # told when it is to be run
        Codec(kind, "the state").decode(encode(data, "data"))

    with opening.opened(store, "run", report, seen=seen, check_data=check_data) as opened:
        if opened.was_finished:
            if watch and report.has("edited"):
                watch.opened(report)
            opened.close()
            return Outcome("completed", report, skipped=opened.moment.root.plan.progress.leaves, entered=False)
        if watch:
            watch.opened(report)
        try:
            root = agent or load(store, opened.definition.agent)
        except SatchelError:
            opened.close()
            raise
        except Exception as error:
            opened.close("failed", "the agent's code can't be imported", describe(error, store.url))
            return Outcome("failed", report, error=error)
        return await _Runner(Context(opened, interruption, watch), root, report).run()


def _asleep(seen: Look) -> Outcome | None:
    """What there is to say of a run that sleeps and whose time has not come."""
    moment = seen.moment
    if moment.status != "sleeping" or not moment.clean or datetime.fromisoformat(moment.until) <= datetime.now(UTC):
        return None
    settled, leaves = moment.root.plan.progress
    return Outcome(
        "sleeping", Report(), skipped=settled, open_items=leaves - settled, until=moment.until, entered=False
    )


class _Runner:
    """From the opened workspace to the stop."""

    def __init__(self, context: Context, agent: Agent, report: Report):
        self._context, self._agent, self._report = context, agent, report
        context.make_run = Run

    async def run(self) -> Outcome:
        context = self._context
        session = Session(context, self._agent)
        publish_schemas(session)
        skipped = session.recorded.plan.progress.settled
        status: EndStatus = "completed"
        reason, until, result, error = "", "", None, None
        context.wake_projector()
        context.agents[""] = session
        try:
            result = await session.call()
        except BaseException as raised:
            status, reason = self._judge(raised)
            error = raised if status == "failed" else None
        finally:
            await context.stop_all()
            context.projector.wake = None
            context.threads.shutdown(wait=False, cancel_futures=True)
        failure = describe(error, session.store.url) if error else None
        if status in ("waiting", "paused", "sleeping") and context.suspension:
            until, failure = context.suspension.until, context.suspension.error
        context.workspace.close(status, reason, failure, until)
        if status == "paused" and not (context.interruption.came or context.suspension):
            raise asyncio.CancelledError  # whoever cancelled this task waits for that
        moment, progress = context.moment, session.plan.progress
        return Outcome(
            status, self._report, result, error, list(moment.doubts.values()), context.answered, context.recovered,
            skipped, progress.leaves - progress.settled, context.projector.noticed, until,
        )  # fmt: skip

    def _judge(self, raised: BaseException) -> tuple[EndStatus, str]:
        """What it means that the agent's function raised. Raises it again if nothing may be written any more, or if it
        is nobody's here. An agent that made something of its own of a `Suspended` is still suspended."""
        context = self._context
        if isinstance(raised, StorageFailed):
            raise raised
        if context.failed:
            raise context.failed
        if context.suspension:
            return context.suspension.status, context.suspension.reason
        if isinstance(raised, asyncio.CancelledError):
            if context.interruption.came:
                return "paused", "signal"
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                return "paused", "cancelled"
            return "failed", "CancelledError"
        if isinstance(raised, Exception):
            return "failed", said(raised)
        raise raised
