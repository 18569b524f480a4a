"""The outcome of a start."""

from __future__ import annotations

from typing import Generic, NamedTuple, Self

from msgspec import Struct, field

from ...workspace.base import SatchelError
from ...workspace.inspect import Report
from ...workspace.journal.records import ApprovalAsked, Doubt, EndStatus
from ...workspace.state import Moment
from ..agent import said
from ..steps import R


class Outcome(Struct, Generic[R]):
    """How a run stopped, and what it did not have to do again.

    `status`; `result`, the return value of the agent, also of a run that had completed before; `error`; `doubts`, the
    open questions about effects, and `approvals`, those of the agent; `until`, when a sleeping run must be started
    again.
    """

    status: EndStatus
    report: Report
    result: R | None = None
    error: BaseException | None = None
    doubts: list[Doubt] = field(default_factory=list)  # what a person is asked about effects
    approvals: list[ApprovalAsked] = field(default_factory=list)  # and by the agent
    answered: int = 0  # calls that were answered from the record
    recovered: int = 0  # characters of streamed answers that were continued
    skipped: int = 0  # items that were finished before
    open_items: int = 0
    noticed: list[str] = field(default_factory=list)  # edits that came while it was running
    until: str = ""  # when a sleeping run wakes: UTC, ISO 8601
    entered: bool = True  # whether the agent was called; if not, the run stays as it was
    restarts: bool = False  # the supervisor continues it in another process
    late: frozenset[str] = frozenset()  # tasks and edits after the last looks of a completed run

    def __repr__(self) -> str:
        """Short: the report and the rest of it are for those who ask."""
        said = {"status": self.status, "result": self.result, "error": self.error, "until": self.until}
        shown = ", ".join(f"{key}={value!r}" for key, value in said.items() if value not in (None, ""))
        return f"{type(self).__name__}({shown})"

    def raise_for_status(self) -> Self:
        """Return this outcome if the run has completed, so that calls can be chained:
        `run(folder).raise_for_status().result`. Else raise NotCompleted, which has the outcome; it comes `from` the
        agent's error if there is one."""
        if self.status == "completed":
            return self
        raise NotCompleted(f"the run has not completed: {self.status}{self._why()}", self) from self.error

    def _why(self) -> str:
        if self.error is not None:
            return f" with {said(self.error)}"
        asked = len(self.doubts) + len(self.approvals)
        if self.status == "waiting" and asked:
            return f" for a person ({asked} open question{'s' if asked > 1 else ''})"
        return f" until {self.until}" if self.until else ""


class After(NamedTuple):
    """An outcome, and the newest moment of the run, so that its caller need not look again."""

    outcome: Outcome
    moment: Moment


class NotCompleted(SatchelError):
    """A run has stopped without completing: it has failed, is paused, waits, sleeps, or is cancelled. `outcome` is what
    `run` has returned."""

    def __init__(self, what: str, outcome: Outcome):
        super().__init__(what)
        self.outcome = outcome
