"""The audit: the records that tell what people and processes did to a run, and who did it."""

from __future__ import annotations

from ...workspace.journal.records import (
    AnyRecord,
    ApprovalAnswered,
    ApprovalRevoked,
    Closed,
    Edited,
    Forced,
    Line,
    Opened,
    Paused,
    PauseLate,
    PauseRequested,
    PlanChanged,
    Pruned,
    Resolved,
    Resumed,
    Rewound,
    Saved,
)

_AUDITED = (
    Opened,
    Closed,
    Saved,
    Edited,
    ApprovalAnswered,
    ApprovalRevoked,
    Resolved,
    PauseRequested,
    PauseLate,
    Forced,
    Paused,
    Resumed,
    Rewound,
    Pruned,
)


def is_audited(record: AnyRecord) -> bool:
    """Whether a record is a save of a checkpoint, an opening or a closing, or the deed of a person."""
    return isinstance(record, _AUDITED) or (isinstance(record, PlanChanged) and record.by == "person")


class Who:
    """Who did what a record tells. Give it every record, in their order."""

    def __init__(self) -> None:
        self._process = ""  # that has the workspace

    def did(self, line: Line) -> str:
        """A person, as the record names one; else the process and the user who has started it. Empty if the record of
        its opening was not read."""
        record = line.record
        if isinstance(record, Opened):
            self._process = f"{record.by or record.host}, process {record.pid}"
            return self._process
        if isinstance(record, PlanChanged):
            return record.person or f"the {record.by}"
        said: str | None = getattr(record, "by", None)
        return self._process if said is None else said or "a person"
