"""Runs an agent over a workspace in this process, from opening to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from ..workspace import opening
from ..workspace.errors import SatchelError, StorageFailed
from ..workspace.looking import look
from ..workspace.record import Doubt, Failure
from ..workspace.report import Report
from ..workspace.store import Store, open_store
from .agent import Agent, load
from .calls import current_scope
from .run import Run
from .session import Session, Watch

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
    return asyncio.run(run_async(workspace, agent, watch=watch))


async def run_async(
    workspace: str | os.PathLike[str] | Store, agent: Agent | None = None, *, watch: Watch | None = None
) -> Outcome:
    """`run`, in a loop that is running already."""
    store = open_store(os.fspath(workspace)) if isinstance(workspace, str | os.PathLike) else workspace
    report = Report()
    if _is_finished(store):  # it may still need repair: the last process may have died while it was closing
        with opening.opened(store, "recover", report) as opened:
            opened.close()
            return Outcome("completed", report, skipped=opened.moment.plan.progress.leaves)
    with opening.opened(store, "run", report) as opened:
        if watch:
            watch.opened(report)
        try:
            session = Session(opened, agent or load(store, opened.definition.agent), watch)
        except SatchelError:
            opened.close()
            raise
        except Exception as error:
            opened.close("failed", "the agent's code can't be imported", _failure(error, store.url))
            return Outcome("failed", report, error=error)
        return await _Runner(session, report).run()


def _is_finished(store: Store) -> bool:
    """Whether the run has completed and nothing of its plan is left to do: then the agent is not called again."""
    moment = look(store).moment
    return moment.status == "completed" and moment.plan.progress.settled == moment.plan.progress.leaves


class _Runner:
    """From the opened workspace to the stop."""

    def __init__(self, session: Session, report: Report):
        self._session, self._report = session, report

    async def run(self) -> Outcome:
        session = self._session
        session.run = Run(session)
        _publish_state_schema(session)
        loop = asyncio.get_running_loop()
        session.projector.wake = lambda delay: loop.call_later(delay, session.projector.catch_up)  # type: ignore[assignment]
        skipped = session.moment.plan.progress.settled
        status: Status = "completed"
        reason, result, error = "", None, None
        with self._interruptible():
            try:
                session.begin()
                result = await self._call_agent()
            except StorageFailed:
                raise
            except BaseException as raised:
                status, reason, error = self._judge(raised)
                if error is None and status == "failed":
                    raise
            finally:
                session.projector.wake = None
                session.threads.shutdown(wait=False, cancel_futures=True)
            failure = _failure(error, session.store.url) if error else None
            session.workspace.close(status, reason, failure)
        moment = session.moment
        progress = session.plan.progress
        return Outcome(
            status, self._report, result, error, list(moment.doubts.values()), session.answered, session.recovered,
            skipped, progress.leaves - progress.settled, session.projector.noticed,
        )  # fmt: skip

    async def _call_agent(self) -> Any:
        session = self._session
        token = current_scope.set(session.root)
        try:
            result = await session.agent.function(session.run)
            await session.root.quiet()
            session.check_going_on()
            session._ask_about_unreached(session.root)
            session.check_state_unchanged("when the agent returned")
            return result
        except BaseException:
            session.is_closing = True
            await session.root.quiet()
            raise
        finally:
            session.root.ended = True
            current_scope.reset(token)

    def _judge(self, raised: BaseException) -> tuple[Status, str, BaseException | None]:
        """What it means that the agent's function raised. An agent that turned a `Suspended` into something of its
        own is still suspended."""
        if self._session.is_suspended:
            return "waiting", "a person is asked", None
        if self._session.is_interrupted and isinstance(raised, asyncio.CancelledError):
            return "paused", "signal", None
        if isinstance(raised, Exception | asyncio.CancelledError):
            return "failed", f"{type(raised).__name__}: {raised}", raised
        return "failed", "", None

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """SIGINT and SIGTERM stop the run; what was under way is treated as after a crash, but all files are written.
        A second one does not wait for threads that are still at work."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        session = self._session

        def stop(number: int, frame: object) -> None:
            if session.is_interrupted:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            session.is_interrupted = session.is_closing = True
            loop.call_soon_threadsafe(task.cancel)

        # Not loop.add_signal_handler: an agent whose steps never wait would not hear of the signal.
        before: dict[int, Any] = {}
        try:
            for each in (signal.SIGINT, signal.SIGTERM):
                before[each] = signal.signal(each, stop)
        except ValueError:  # only the main thread may
            pass
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _publish_state_schema(session: Session) -> None:
    """The schema of the agent's own data, where an editor finds it when it checks state.json."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "data.json", **session.codec.schema()}
    text = msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"
    path = ".satchel/schemas/data.json"
    if session.store.read(path).data != text:
        session.store.replace(path, text, sync="data")


def _failure(error: BaseException, root: str) -> Failure:
    """An exception as text, with the lines of the agent's own code it came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(f"{root}/")]
    where = tuple(f"{os.path.relpath(frame.filename, root)}:{frame.lineno} in {frame.name}" for frame in frames[-5:])
    return Failure(type(error).__name__, str(error), where)
