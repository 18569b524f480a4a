"""Satchel: a run is a folder, and it survives kill -9.

from satchel import agent, step, effect, Run, Partial, Retry
"""

from .workspace.base.lazy import on_first_use

with on_first_use(__name__):
    from .runtime.agent import Agent, Migration, Resource, agent, migration
    from .runtime.control import (
        Answering,
        Blame,
        Checked,
        Difference,
        Draft,
        Editing,
        Ended,
        Handle,
        Made,
        Merging,
        OpenQuestion,
        Pruned,
        Recovered,
        Redoing,
        Replayed,
        Result,
        Rewinding,
        Row,
        Sent,
        Shown,
        Standing,
        Stopping,
        Supervised,
        Tried,
        events,
        ls,
        new,
        open,
        open_all,
        serve,
        stop_all,
        stream,
    )
    from .runtime.engine import Effect, RecordedError, Watch, effect
    from .runtime.execution import NotCompleted, Outcome, run, run_async
    from .runtime.run import Answer, InboxTask, Item, Run
    from .runtime.steps import Key, Partial, Prompt, Retry, Sealed, Step, step
    from .runtime.supervision.child import Background
    from .runtime.supervision.emergency import Stopped
    from .runtime.supervision.serve import ServeEvent
    from .workspace.base import (
        AgentError,
        Conflicting,
        Damaged,
        DoesNotFit,
        InvalidFile,
        KeyReused,
        LeaseHeld,
        NewerFormat,
        NotDone,
        NotSerializable,
        Refused,
        SatchelError,
        StorageFailed,
        UsageError,
    )
    from .workspace.history import Worked
    from .workspace.inspect import Exported, Report
    from .workspace.journal.records import ApprovalAsked, Doubt
    from .workspace.lifecycle import Cut
    from .workspace.state import LaterEffect
    from .workspace.store import Store
    from .workspace.todo import Task
    from .workspace.transfer import Forked, Journey
    from .workspace.views import Marker

__all__ = [
    "Agent",
    "AgentError",
    "Answer",
    "Answering",
    "ApprovalAsked",
    "Background",
    "Blame",
    "Checked",
    "Conflicting",
    "Cut",
    "Damaged",
    "Difference",
    "DoesNotFit",
    "Doubt",
    "Draft",
    "Editing",
    "Effect",
    "Ended",
    "Exported",
    "Forked",
    "Handle",
    "InboxTask",
    "InvalidFile",
    "Item",
    "Journey",
    "Key",
    "KeyReused",
    "LaterEffect",
    "LeaseHeld",
    "Made",
    "Marker",
    "Merging",
    "Migration",
    "NewerFormat",
    "NotCompleted",
    "NotDone",
    "NotSerializable",
    "OpenQuestion",
    "Outcome",
    "Partial",
    "Prompt",
    "Pruned",
    "RecordedError",
    "Recovered",
    "Redoing",
    "Refused",
    "Replayed",
    "Report",
    "Resource",
    "Result",
    "Retry",
    "Rewinding",
    "Row",
    "Run",
    "SatchelError",
    "Sealed",
    "Sent",
    "ServeEvent",
    "Shown",
    "Standing",
    "Step",
    "Stopped",
    "Stopping",
    "StorageFailed",
    "Store",
    "Supervised",
    "Task",
    "Tried",
    "UsageError",
    "Watch",
    "Worked",
    "agent",
    "effect",
    "events",
    "ls",
    "migration",
    "new",
    "open",
    "open_all",
    "run",
    "run_async",
    "serve",
    "step",
    "stop_all",
    "stream",
]
