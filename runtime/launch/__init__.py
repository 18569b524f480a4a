"""How a program makes a run and starts it.

templates  a new workspace from a sample of the package, or from the definition and code of any workspace
runner     the agent in this process, with the outcome or with what happens
detached   in another process: supervised by this one, in the background, or all below a folder
pool       many runs on the event loop of a program
"""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from . import detached, templates
    from .detached import StartOptions, SupervisionResult, serve
    from .pool import Pool
    from .runner import LocalRun, RunResult, no_exit, stream
    from .templates import NewWorkspace, Template, new, new_async, samples, typed_settings
