"""Satchel: a run is a folder, and it survives kill -9.

from satchel import agent, step, effect, Run, Partial, Retry
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .runtime.agent import Agent, agent
    from .runtime.answer import Answer
    from .runtime.calls import Key, step
    from .runtime.effects import effect
    from .runtime.inbox import InboxTask
    from .runtime.migration import Migration, migration
    from .runtime.partial import Partial
    from .runtime.raised import RecordedError
    from .runtime.resource import Resource
    from .runtime.retry import Retry
    from .runtime.run import Run
    from .runtime.running import Outcome, run, run_async
    from .runtime.todolist import Item
    from .workspace.errors import NotDone, SatchelError
    from .workspace.partial import Marker

__all__ = [
    "Agent",
    "Answer",
    "InboxTask",
    "Item",
    "Key",
    "Marker",
    "Migration",
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
    "migration",
    "run",
    "run_async",
    "step",
]

_HOMES = {
    "runtime.agent": ("Agent", "agent"),
    "runtime.answer": ("Answer",),
    "runtime.calls": ("Key", "step"),
    "runtime.effects": ("effect",),
    "runtime.inbox": ("InboxTask",),
    "runtime.migration": ("Migration", "migration"),
    "runtime.partial": ("Partial",),
    "runtime.raised": ("RecordedError",),
    "runtime.resource": ("Resource",),
    "runtime.retry": ("Retry",),
    "runtime.run": ("Run",),
    "runtime.running": ("Outcome", "run", "run_async"),
    "runtime.todolist": ("Item",),
    "workspace.errors": ("NotDone", "SatchelError"),
    "workspace.partial": ("Marker",),
}


def __getattr__(name: str) -> Any:
    """Load what is asked for: `satchel stop` must not wait for what only a run needs."""
    for home, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(importlib.import_module(f".{home}", __name__), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
