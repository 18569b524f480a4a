"""What stops a run by itself, and notices to people: windows, budgets, notices."""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from . import budget, limits, notices, windows
    from .budget import Share
    from .limits import Limits, pause_for, utc_now
    from .notices import Announcer, NoticeCheck
