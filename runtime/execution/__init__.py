"""One run in this process, from opening to stop."""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from . import running
    from .live_edits import EditRecorder
    from .preflight import check_recorded
    from .running import run, run_async
    from .start import After, NotCompleted, Outcome, RunOptions, Start, check_agent, check_watch
