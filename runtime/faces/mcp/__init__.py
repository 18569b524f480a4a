"""Runs for other agents: a server of the Model Context Protocol over the workspaces below a folder or URL.

command          `satchel mcp`, and what starts the server
protocol_server  what the protocol asks for, put together from the modules below; the files of runs as resources; and
                 who is told when something changes: on stdin and stdout, or over HTTP
tools            the tools, with what they take
descriptions     the runs below the root, by name, and what clients are told of them
tasks            a run as a task of the protocol

Only `command` may be imported without the package `mcp`.
"""

# mypy: implicit-reexport

from ....workspace import deferred

if not deferred(__name__):
    from .command import ACTIONS, allowed_of, serve_mcp
