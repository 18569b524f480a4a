"""Satchel: a run is a folder, and it survives kill -9.

from satchel import agent, step, effect, Run, Partial, Retry
"""

from .workspace.base.lazy import on_first_use

with on_first_use(__name__):
    from .runtime.agent import Agent, Migration, Resource, agent, migration
    from .runtime.control import Handle, events, ls, new, open, open_all, serve, stop_all, stream
    from .runtime.engine import RecordedError, effect
    from .runtime.execution import NotCompleted, Outcome, run, run_async
    from .runtime.run import Answer, InboxTask, Item, Run
    from .runtime.steps import Key, Partial, Retry, step
    from .workspace.base import NotDone, SatchelError
    from .workspace.views import Marker

__all__ = [
    "Agent",
    "Answer",
    "Handle",
    "InboxTask",
    "Item",
    "Key",
    "Marker",
    "Migration",
    "NotCompleted",
    "NotDone",
    "Outcome",
    "Partial",
    "RecordedError",
    "Resource",
    "Retry",
    "Run",
    "SatchelError",
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
