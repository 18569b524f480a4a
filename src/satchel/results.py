"""What the functions and methods of Satchel return, take and report, for annotations."""

from .workspace.base.lazy import deferred

if not deferred(__name__):
    from .runtime.agent import Migration
    from .runtime.api import (
        Answering,
        Blame,
        Checked,
        Cutting,
        Difference,
        Draft,
        Editing,
        Ended,
        Foreseen,
        Made,
        Merging,
        OpenQuestion,
        Pruned,
        Recovered,
        Redoing,
        Rehearsed,
        Replayed,
        Result,
        Rewinding,
        Row,
        RunFile,
        Sent,
        Shown,
        Standing,
        Stopping,
        Supervised,
        Tried,
        Withdrawn,
    )
    from .runtime.limits import TriedNotice
    from .runtime.live import Watch
    from .runtime.supervision.child import Background
    from .runtime.supervision.emergency import Stopped
    from .runtime.supervision.serve import ServeEvent
    from .workspace.history import Worked
    from .workspace.inspect import Exported, Report
    from .workspace.journal.records import ApprovalAsked, Doubt
    from .workspace.lifecycle import Cut
    from .workspace.state import LaterEffect
    from .workspace.store import Store
    from .workspace.transfer import Forked, Journey
    from .workspace.views import Marker

__all__ = [
    "Answering",
    "ApprovalAsked",
    "Background",
    "Blame",
    "Checked",
    "Cut",
    "Cutting",
    "Difference",
    "Doubt",
    "Draft",
    "Editing",
    "Ended",
    "Exported",
    "Foreseen",
    "Forked",
    "Journey",
    "LaterEffect",
    "Made",
    "Marker",
    "Merging",
    "Migration",
    "OpenQuestion",
    "Pruned",
    "Recovered",
    "Redoing",
    "Rehearsed",
    "Replayed",
    "Report",
    "Result",
    "Rewinding",
    "Row",
    "RunFile",
    "Sent",
    "ServeEvent",
    "Shown",
    "Standing",
    "Stopped",
    "Stopping",
    "Store",
    "Supervised",
    "Tried",
    "TriedNotice",
    "Watch",
    "Withdrawn",
    "Worked",
]
