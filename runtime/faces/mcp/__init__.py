"""Runs for other agents: a server of the Model Context Protocol over the workspaces below a folder or URL.

serving        starts the server, on stdin and stdout or over HTTP behind the `guard`
server         what the protocol asks for, put together from the modules below
runs           the runs below the root, by name
tools          the tools: `looking` reads, `acting` changes, `shapes` is what they take and give, `describing` fills it
tasks          a run as a task of the protocol
resources      the files of the runs, and `watching`: who is told when one changes

Only `serving` may be imported without the package `mcp`.
"""

# mypy: implicit-reexport

from ....workspace.base.lazy import deferred

if not deferred(__name__):
    from .serving import ACTIONS, allowed_of, serve_mcp
