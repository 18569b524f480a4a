"""How a program makes a run and starts it.

templates  a new workspace from a sample of the package, or from the definition and code of any workspace
runner     the agent in this process, with the outcome or with what happens; and those of `serve` that share a process
background  in another process: supervised by this one, in the background, or all below a folder; and what should run
           now there, for a program with an engine of its own
pool       many runs on the event loop of a program
"""

# mypy: implicit-reexport

from ...workspace import deferred

if not deferred(__name__):
    from . import background, templates
    from .background import DueLook, DueRun, SupervisionResult, due, new_aside, serve
    from .pool import Pool
    from .runner import LocalRun, RunResult, SharedRuns, channel_of_stdin, no_exit, stream
    from .templates import (
        NewWorkspace,
        Setting,
        Template,
        new,
        new_async,
        samples,
        settings_of,
        typed_settings,
        value_of,
    )
