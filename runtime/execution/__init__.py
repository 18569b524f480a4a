"""One run in this process, from opening to stop."""

from typing import TYPE_CHECKING

from ...workspace.base.lazy import lazily

if TYPE_CHECKING:
    from . import running
    from .outcome import Outcome
    from .running import run, run_async
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "outcome": ("Outcome",),
            "running": ("run", "run_async", "running"),
        },
    )

__all__ = ["Outcome", "run", "run_async", "running"]
