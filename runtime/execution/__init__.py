"""One run in this process, from opening to stop, and the `run` object that its agent gets."""

# mypy: implicit-reexport

from ...workspace import deferred

if not deferred(__name__):
    from . import running
    from .ask import Answer
    from .live_edits import EditRecorder
    from .preflight import check_recorded
    from .run_inbox import InboxTask
    from .run_object import Item, Run
    from .running import run, run_async
    from .start import After, NotCompleted, Outcome, RunOptions, Start, check_agent, check_watch
