"""Satchel: a run is a folder, and it survives kill -9.

from satchel import agent, step, effect, Run, Partial, Retry
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .runtime.agent import Agent, Migration, Resource, agent, migration
    from .runtime.control import Handle, ls, new, open, open_all, serve, stop_all
    from .runtime.engine import RecordedError, effect
    from .runtime.execution import Outcome, run, run_async
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
]

_HOMES = {
    "runtime.agent": ("Agent", "Migration", "Resource", "agent", "migration"),
    "runtime.control": ("Handle", "ls", "new", "open", "open_all", "serve", "stop_all"),
    "runtime.engine": ("RecordedError", "effect"),
    "runtime.execution": ("Outcome", "run", "run_async"),
    "runtime.run": ("Answer", "InboxTask", "Item", "Run"),
    "runtime.steps": ("Key", "Partial", "Retry", "step"),
    "workspace.base": ("NotDone", "SatchelError"),
    "workspace.views": ("Marker",),
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `satchel stop` need not load what only a run needs."""
    for home, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(importlib.import_module(f".{home}", __name__), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
