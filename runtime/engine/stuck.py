"""A run whose process crashes again and again, with nothing new on record, is paused as stuck."""

from __future__ import annotations

from ...workspace.journal.records import Failure, PauseRequested
from ...workspace.state import STUCK_AFTER, Scope, crashes
from .context import Context
from .stopping import Suspended


def check(context: Context, scope: Scope) -> None:
    """Call it before `scope` is entered, also for the first time: the agent itself is one, too."""
    if scope.crashes < STUCK_AFTER:
        return
    titles = [repr(title) for title in crashes.suspects(context.moment.agents)]
    ran = f" while {' and '.join(titles)} ran" if titles else ""
    why = f"the process has crashed {scope.crashes} times{ran}, with nothing new on record"
    context.stopping.pause(PauseRequested(reason=f"stuck: {why}", by="satchel"), Failure("Crashed", why))
    raise Suspended
