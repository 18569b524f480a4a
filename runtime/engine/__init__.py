"""Run scopes: return recorded results, run other calls, record and commit."""

from typing import TYPE_CHECKING

from ...workspace.base.lazy import lazily

if TYPE_CHECKING:
    from . import recording, reverify, uplink
    from .context import AgentContext, Context
    from .doubts import Doubts, put_question
    from .effect_decorator import effect
    from .open_scope import PREVIEW, Call, OpenScope, check_outside_steps, current_call
    from .own_step import OwnStep
    from .raised import RecordedError
    from .scope import ScopeRun
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
            "open_scope": ("Call", "OpenScope", "PREVIEW", "check_outside_steps", "current_call"),
            "own_step": ("OwnStep",),
            "raised": ("RecordedError",),
            "recording": ("recording",),
            "reverify": ("reverify",),
            "scope": ("ScopeRun",),
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
    "OpenScope",
    "OwnStep",
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
    "recording",
    "release",
    "reverify",
    "uplink",
]
