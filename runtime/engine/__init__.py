"""Run scopes: return recorded results, run other calls, record and commit."""

from typing import TYPE_CHECKING

from ...workspace.base.lazy import lazily

if TYPE_CHECKING:
    from . import reverify, uplink
    from .context import AgentContext, Context
    from .doubts import Doubts, put_question
    from .effect_decorator import effect
    from .raised import RecordedError
    from .scope import PREVIEW, Call, ScopeRun, check_outside_steps, current_call
    from .session import Session
    from .signals import Interruption, hold, release
    from .stopping import Stopping, Suspended, Suspension
    from .uplink import Word
    from .watch import Watch
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "context": ("AgentContext", "Context"),
            "doubts": ("Doubts", "put_question"),
            "effect_decorator": ("effect",),
            "raised": ("RecordedError",),
            "reverify": ("reverify",),
            "scope": ("Call", "PREVIEW", "ScopeRun", "check_outside_steps", "current_call"),
            "session": ("Session",),
            "signals": ("Interruption", "hold", "release"),
            "stopping": ("Stopping", "Suspended", "Suspension"),
            "uplink": ("Word", "uplink"),
            "watch": ("Watch",),
        },
    )

__all__ = [
    "PREVIEW",
    "AgentContext",
    "Call",
    "Context",
    "Doubts",
    "Interruption",
    "RecordedError",
    "ScopeRun",
    "Session",
    "Stopping",
    "Suspended",
    "Suspension",
    "Watch",
    "Word",
    "check_outside_steps",
    "current_call",
    "effect",
    "hold",
    "put_question",
    "release",
    "reverify",
    "uplink",
]
