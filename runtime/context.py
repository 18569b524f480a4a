"""What all calls of one run share: the opened workspace, the counts, and whether the run goes on."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Protocol

from ..workspace.errors import SatchelError
from ..workspace.opening import Workspace
from ..workspace.record import Doubt, Key
from ..workspace.report import Report
from .interruption import Interruption

_THREADS = 32


class Suspended(BaseException):
    """Unwinds the agent when a person is needed. Not an Exception, so that an agent's `except Exception` lets it by."""


class Watch(Protocol):
    """Who is told how a run goes, for a person to see. Called on the loop; must be quick and must not raise."""

    def opened(self, report: Report) -> None: ...
    def item_begun(self, text: str, finished: int, of: int) -> None: ...
    def item_ended(self, text: str, finished: int, of: int) -> None: ...
    def step_begun(self, name: str) -> None: ...
    def streamed(self, name: str, characters: int) -> None: ...


class Context:
    """Of one run. Used from one event loop."""

    def __init__(self, workspace: Workspace, interruption: Interruption, watch: Watch | None):
        self.workspace, self.interruption, self.watch = workspace, interruption, watch
        self.store, self.moment = workspace.store, workspace.moment
        self.journal, self.projector = workspace.journal, workspace.projector
        self.threads = ThreadPoolExecutor(_THREADS, "satchel-step")
        self.run: Any = None  # the face of it that the agent sees (run.py)
        self.under_way = 0  # calls that may commit
        self.answered = 0  # calls answered from the record
        self.recovered = 0  # characters of streamed answers that were not paid for again
        self.is_closing = False
        self.is_suspended = False
        self.failed: SatchelError | None = None  # what went wrong where nobody was waiting for it

    def check_going_on(self) -> None:
        """Every call is a place to stop: when a person is needed, when a signal came, when the disk failed."""
        if self.failed:
            raise self.failed
        if self.is_suspended:
            raise Suspended
        if self.interruption.came:
            raise asyncio.CancelledError

    def ask(
        self, identity: dict[str, Any], why: Literal["unknown_outcome", "unclaimed", "unreached"],
        cause: str = "", others: tuple[Key, ...] = (),
    ) -> None:  # fmt: skip
        """Put a question about an effect on record, unless it is there already. From now on every call unwinds: a
        person is needed."""
        doubt = Doubt(**identity, id=f"d{self.moment.doubts_asked + 1}", why=why, cause=cause, others=others)
        if not any(_is_same_question(doubt, asked) for asked in self.moment.doubts.values()):
            self.journal.add(doubt)
            self.journal.flush()
        self.is_suspended = True

    def wake_projector(self) -> None:
        """Let the projector have the loop's timer, for what it could not write at once."""
        loop = asyncio.get_running_loop()

        def wake(delay: float) -> None:
            loop.call_later(delay, self._catch_up)

        self.projector.wake = wake

    def _catch_up(self) -> None:
        try:
            self.journal.flush()  # so that what waits for company, an item that has begun, can be seen
            self.projector.catch_up()
        except SatchelError as error:
            self.failed = error

    def step_is_done(self) -> None:
        self.projector.mark(self.workspace.files.steps)
        self.workspace.checkpoint_if_due()


def _is_same_question(doubt: Doubt, asked: Doubt) -> bool:
    """Of an unclaimed effect the arguments may differ at every attempt."""
    if doubt.scope != asked.scope:
        return False
    return doubt.key == asked.key or (doubt.step == asked.step and doubt.why == asked.why == "unclaimed")
