"""Satchel: a run is a folder, and it survives kill -9.

from satchel import agent, step, effect, Run, Partial, Retry
"""

from .workspace import deferred

if not deferred(__name__):
    from . import errors, results
    from .runtime.agent import Agent, Key, Partial, Prompt, Resource, Retry, Sealed, Step, agent, clean, migration
    from .runtime.api import Handle, Pool, due, hold, ls, new, new_async, open_all, remove, serve, stop_all, stream
    from .runtime.api import open as open  # not in `__all__`: `import *` must not hide the builtin
    from .runtime.engine import Effect, effect, step
    from .runtime.execution import Answer, InboxTask, Item, NotCompleted, Outcome, Run, run, run_async
    from .runtime.status import events
    from .workspace.base import NotDone, Refused, SatchelError, UsageError
    from .workspace.plan import Task

__all__ = [
    "Agent",
    "Answer",
    "Effect",
    "Handle",
    "InboxTask",
    "Item",
    "Key",
    "NotCompleted",
    "NotDone",
    "Outcome",
    "Partial",
    "Pool",
    "Prompt",
    "Refused",
    "Resource",
    "Retry",
    "Run",
    "SatchelError",
    "Sealed",
    "Step",
    "Task",
    "UsageError",
    "agent",
    "clean",
    "due",
    "effect",
    "events",
    "hold",
    "ls",
    "migration",
    "new",
    "new_async",
    "open_all",
    "remove",
    "run",
    "run_async",
    "serve",
    "step",
    "stop_all",
    "stream",
]
