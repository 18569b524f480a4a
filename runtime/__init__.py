"""Runs an agent over a workspace: steps, commits, effects, and the command line."""

from ..workspace.partial import Marker
from .agent import Agent, agent
from .calls import step
from .effects import effect
from .partial import Partial
from .retry import Retry
from .run import Run
from .running import Outcome, run, run_async
from .todolist import Item

__all__ = [
    "Agent",
    "Item",
    "Marker",
    "Outcome",
    "Partial",
    "Retry",
    "Run",
    "agent",
    "effect",
    "run",
    "run_async",
    "step",
]
