"""The errors of Satchel. `SatchelError` is the base of all but `RecordedError`: the recorded error of a step.

The ones that a program is most likely to catch can be imported from `satchel`, too.
"""

from .workspace import deferred

if not deferred(__name__):
    from .runtime.execution import NotCompleted
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
        NoWorkspace,
        RecordedError,
        Refused,
        SatchelError,
        StorageFailed,
        UsageError,
    )

__all__ = [
    "AgentError",
    "Conflicting",
    "Damaged",
    "DoesNotFit",
    "InvalidFile",
    "KeyReused",
    "LeaseHeld",
    "NewerFormat",
    "NoWorkspace",
    "NotCompleted",
    "NotDone",
    "NotSerializable",
    "RecordedError",
    "Refused",
    "SatchelError",
    "StorageFailed",
    "UsageError",
]
