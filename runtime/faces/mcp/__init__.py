"""Runs for other agents: a server of the Model Context Protocol over the workspaces below a folder or URL.

command          `satchel mcp`
serving          starts the server; `transports` are stdin and stdout, and HTTP behind a guard
protocol_server  what the protocol asks for, put together from the modules below
run_names        the runs below the root, by name
tools            the tools; `shapes` is what they take and give, `describing` fills it
tasks            a run as a task of the protocol
watching         the files of the runs as resources, and who is told when one changes

Only `serving` may be imported without the package `mcp`.
"""

# mypy: implicit-reexport

from ....workspace.base.lazy import deferred

if not deferred(__name__):
    from .serving import ACTIONS, allowed_of, serve_mcp
