"""What stops a run by itself, and notices to people: windows, budgets, notices."""

from typing import TYPE_CHECKING

from ...workspace.base.lazy import lazily

if TYPE_CHECKING:
    from . import budget, limits, windows
    from .announcing import Announcer
    from .budget import Share
    from .limits import Limits, pause_for, utc_now
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "announcing": ("Announcer",),
            "budget": ("Share", "budget"),
            "limits": ("Limits", "limits", "pause_for", "utc_now"),
            "windows": ("windows",),
        },
    )

__all__ = ["Announcer", "Limits", "Share", "budget", "limits", "pause_for", "utc_now", "windows"]
