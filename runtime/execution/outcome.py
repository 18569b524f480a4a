"""The outcome of a start."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from ...workspace.inspect import Report
from ...workspace.journal.records import ApprovalAsked, Doubt, EndStatus


class Outcome(Struct):
    """How a run stopped, and what it did not have to do again.

    `status`; `result`, the return value of the agent; `error`; `doubts`, the open questions about effects, and
    `approvals`, those of the agent; `until`, when a sleeping run must be started again.
    """

    status: EndStatus
    report: Report
    result: Any = None
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
    late: frozenset[str] = frozenset()  # tasks and edits after the last looks of a completed run
