"""Satchel: a run is a folder, and it survives kill -9.

from satchel import agent, step, effect, Run, Partial, Retry
"""

from .runtime import Agent, Item, Marker, Outcome, Partial, Retry, Run, agent, effect, run, run_async, step
from .workspace.errors import NotDone, SatchelError

__all__ = [
    "Agent",
    "Item",
    "Marker",
    "NotDone",
    "Outcome",
    "Partial",
    "Retry",
    "Run",
    "SatchelError",
    "agent",
    "effect",
    "run",
    "run_async",
    "step",
]
