"""Scopes while they run: answers calls from the record, runs the others, records and commits."""

from typing import TYPE_CHECKING

from ...workspace.base.lazy import lazily

if TYPE_CHECKING:
    from . import reverify, uplink
    from .context import AgentContext, Context, Suspended, Suspension, Watch
    from .effect_decorator import effect
    from .raised import RecordedError
    from .scope import PREVIEW, Call, ScopeRun, check_outside_steps, current_call
    from .session import Session
    from .signals import Interruption, hold, release
    from .uplink import Word
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "context": ("AgentContext", "Context", "Suspended", "Suspension", "Watch"),
            "effect_decorator": ("effect",),
            "raised": ("RecordedError",),
            "reverify": ("reverify",),
            "scope": ("Call", "PREVIEW", "ScopeRun", "check_outside_steps", "current_call"),
            "session": ("Session",),
            "signals": ("Interruption", "hold", "release"),
            "uplink": ("Word", "uplink"),
        },
    )

__all__ = [
    "PREVIEW",
    "AgentContext",
    "Call",
    "Context",
    "Interruption",
    "RecordedError",
    "ScopeRun",
    "Session",
    "Suspended",
    "Suspension",
    "Watch",
    "Word",
    "check_outside_steps",
    "current_call",
    "effect",
    "hold",
    "release",
    "reverify",
    "uplink",
]
