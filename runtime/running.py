"""Runs an agent over a workspace in this process, from opening to stop."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from ..workspace import opening
from ..workspace.errors import SatchelError, StorageFailed
from ..workspace.record import Doubt
from ..workspace.report import Report
from ..workspace.store import Store, open_store
from .agent import Agent, load
from .calls import current_scope
from .context import Watch
from .failure import describe, said
from .interruption import Interruption
from .run import Run
from .session import Session

Status = Literal["completed", "failed", "waiting", "paused"]


@dataclass(slots=True)
class Outcome:
    """How a run stopped, and what it did not have to do again."""

    status: Status
    report: Report
    result: Any = None
    error: BaseException | None = None
    doubts: list[Doubt] = field(default_factory=list)  # what a person is asked
    answered: int = 0  # calls that were answered from the record
    recovered: int = 0  # characters of streamed answers that were continued
    skipped: int = 0  # items that were finished before
    open_items: int = 0
    noticed: list[str] = field(default_factory=list)  # edits that came while it was running


def run(
    workspace: str | os.PathLike[str] | Store, agent: Agent | None = None, *, watch: Watch | None = None
) -> Outcome:
    """Run the agent of a workspace until it completes, fails, or needs a person. Continues where it stopped.

    `workspace` is a folder, or a store. `agent` takes the place of the one that workspace.yaml names. Errors of
    the agent are in the outcome; a workspace that can't be opened raises a SatchelError, and so does a failing disk.
    """

    async def with_signals() -> Outcome:
        interruption = Interruption()
        with interruption.watched():
            return await _run(workspace, agent, watch, interruption)

    return asyncio.run(with_signals())


async def run_async(
    workspace: str | os.PathLike[str] | Store, agent: Agent | None = None, *, watch: Watch | None = None
) -> Outcome:
    """`run`, in a loop that is running already, whose owner handles signals. If the task is cancelled, the run is left
    paused, with everything written, and the cancellation goes on."""
    return await _run(workspace, agent, watch, Interruption())


async def _run(
    workspace: str | os.PathLike[str] | Store, agent: Agent | None, watch: Watch | None, interruption: Interruption
) -> Outcome:
    store = open_store(os.fspath(workspace)) if isinstance(workspace, str | os.PathLike) else workspace
    report = Report()
    with opening.opened(store, "run", report) as opened:
        if opened.was_finished:
            opened.close()
            return Outcome("completed", report, skipped=opened.moment.plan.progress.leaves)
        if watch:
            watch.opened(report)
        try:
            session = Session(opened, agent or load(store, opened.definition.agent), interruption, watch)
        except SatchelError:
            opened.close()
            raise
        except Exception as error:
            opened.close("failed", "the agent's code can't be imported", describe(error, store.url))
            return Outcome("failed", report, error=error)
        return await _Runner(session, report).run()


class _Runner:
    """From the opened workspace to the stop."""

    def __init__(self, session: Session, report: Report):
        self._session, self._report = session, report

    async def run(self) -> Outcome:
        session = self._session
        session.run = Run(session)
        _publish_state_schema(session)
        skipped = session.moment.plan.progress.settled
        status: Status = "completed"
        reason, result, error = "", None, None
        session.wake_projector()
        try:
            session.begin()
            result = await self._call_agent()
        except BaseException as raised:
            status, reason = self._judge(raised)
            error = raised if status == "failed" else None
        finally:
            session.projector.wake = None
            session.threads.shutdown(wait=False, cancel_futures=True)
        session.workspace.close(status, reason, describe(error, session.store.url) if error else None)
        if status == "paused" and not session.interruption.came:
            raise asyncio.CancelledError  # whoever cancelled this task waits for that
        moment, progress = session.moment, session.plan.progress
        return Outcome(
            status, self._report, result, error, list(moment.doubts.values()), session.answered, session.recovered,
            skipped, progress.leaves - progress.settled, session.projector.noticed,
        )  # fmt: skip

    async def _call_agent(self) -> Any:
        session = self._session
        token = current_scope.set(session.root)
        try:
            session.check_going_on()
            result = await session.agent.function(session.run)
            await session.root.quiet()
            session.check_going_on()
            session.ask_about_unreached(session.root)
            session.check_state_unchanged("when the agent returned")
            return result
        except BaseException:
            session.is_closing = True
            await session.root.quiet()
            raise
        finally:
            session.root.ended = True
            current_scope.reset(token)

    def _judge(self, raised: BaseException) -> tuple[Status, str]:
        """What it means that the agent's function raised. Raises it again if nothing may be written any more, or if it
        is nobody's here. An agent that made something of its own of a `Suspended` is still suspended."""
        session = self._session
        if isinstance(raised, StorageFailed):
            raise raised
        if session.failed:
            raise session.failed
        if session.is_suspended:
            return "waiting", "a person is asked"
        if isinstance(raised, asyncio.CancelledError):
            if session.interruption.came:
                return "paused", "signal"
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                return "paused", "cancelled"
            return "failed", "CancelledError"
        if isinstance(raised, Exception):
            return "failed", said(raised)
        raise raised


def _publish_state_schema(session: Session) -> None:
    """The schema of the agent's own data, where an editor finds it when it checks state.json."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "data.json", **session.codec.schema()}
    text = msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"
    path = ".satchel/schemas/data.json"
    if session.store.read(path).data != text:
        session.store.replace(path, text, sync="data")
