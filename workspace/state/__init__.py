"""The state that the records add up to: of the run, its agents and its scopes, and its checkpoints."""

from typing import TYPE_CHECKING

from ..base.lazy import lazily

if TYPE_CHECKING:
    from . import blobs, checkpoint, json_patch
    from .agent_state import CANCEL, EVERY, ROOT, SLEEP, AgentMoment, folder_of_agent
    from .checkpoint import Listed, MessagesAt, Newest, Written
    from .difference import Known
    from .history import History
    from .json_merge import ABSENT, merge
    from .json_patch import same
    from .parts import Fired, Pause, Status, TaskFile, Usage
    from .questions import DONE, REDO, Answered, Verdict, verdicts
    from .run_state import Moment, scope_of_task
    from .scope_state import Answer, Kept, Past, Scope
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "agent_state": ("AgentMoment", "CANCEL", "EVERY", "ROOT", "SLEEP", "folder_of_agent"),
            "blobs": ("blobs",),
            "checkpoint": ("Listed", "MessagesAt", "Newest", "Written", "checkpoint"),
            "difference": ("Known",),
            "history": ("History",),
            "json_merge": ("ABSENT", "merge"),
            "json_patch": ("json_patch", "same"),
            "parts": ("Fired", "Pause", "Status", "TaskFile", "Usage"),
            "questions": ("Answered", "DONE", "REDO", "Verdict", "verdicts"),
            "run_state": ("Moment", "scope_of_task"),
            "scope_state": ("Answer", "Kept", "Past", "Scope"),
        },
    )

__all__ = [
    "ABSENT",
    "CANCEL",
    "DONE",
    "EVERY",
    "REDO",
    "ROOT",
    "SLEEP",
    "AgentMoment",
    "Answer",
    "Answered",
    "Fired",
    "History",
    "Kept",
    "Known",
    "Listed",
    "MessagesAt",
    "Moment",
    "Newest",
    "Past",
    "Pause",
    "Scope",
    "Status",
    "TaskFile",
    "Usage",
    "Verdict",
    "Written",
    "blobs",
    "checkpoint",
    "folder_of_agent",
    "json_patch",
    "merge",
    "same",
    "scope_of_task",
    "verdicts",
]
