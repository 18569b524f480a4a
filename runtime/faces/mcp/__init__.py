"""`satchel mcp`, and `serve_mcp` for programs: runs for other agents. A server of the Model Context Protocol over the
workspaces below a folder or URL, with what clients may do besides reading.

protocol_server  what the protocol asks for, put together from the modules below; the files of runs as resources; and
                 who is told when something changes: on stdin and stdout, or over HTTP
tools            the tools, with what they take
descriptions     the runs below the root, by name, and what clients are told of them
tasks            a run as a task of the protocol

Only this module may be imported without the package `mcp`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import click

from ....workspace.base import UsageError
from ...cli import complete_folders, given, storage_option, tell

ACTIONS = ("start", "answer", "send", "pause", "resume", "cancel", "stop", "fork")
"""The tools that change a run. None is there unless it is allowed."""

ALL = "all"

_EXAMPLES = """\b
Examples:
  satchel mcp ~/runs                        for a client that starts it
  satchel mcp ~/runs --allow answer,resume  clients may answer and resume
  satchel mcp s3://bucket/runs --http 8848  at http://127.0.0.1:8848/mcp

\b
With a token, clients over HTTP have to send `Authorization: Bearer TOKEN`.
Without one, only this machine can reach the server.
"""


@click.command("mcp", epilog=_EXAMPLES, short_help="Serve runs to other agents (Model Context Protocol).")
@click.argument("root", shell_complete=complete_folders)
@click.option(
    "--allow",
    default="",
    metavar="LIST",
    help=f"What clients may do besides reading: {', '.join(ACTIONS)}, or all. [default: nothing]",
)
@click.option("--http", metavar="ADDRESS", help="Listen for HTTP there, not on stdin: PORT, HOST:PORT or unix:PATH.")
@click.option(
    "--token-file", type=click.File("rb"), help="A file with the token of --http. [default: what SATCHEL_MCP_TOKEN has]"
)
@storage_option
def command(root: str, allow: str, http: str | None, token_file: BinaryIO | None) -> None:
    """Serve the runs under ROOT, a folder or URL, to clients of the Model Context Protocol: other agents list runs,
    read their files and follow them as tasks.

    Clients only read, unless --allow says more. The server keeps nothing: you may kill it at any time.
    """
    from ..http import given_token

    token = given_token("SATCHEL_MCP_TOKEN", token_file)
    serve_mcp(root, allow=allow, http=http, token=token, storage_options=given(), tell=tell)


def allowed_of(words: str) -> frozenset[str]:
    """The actions in a list such as `answer,pause`. UsageError for an unknown one."""
    named = [word.strip() for word in words.split(",") if word.strip()]
    if unknown := [word for word in named if word not in (*ACTIONS, ALL)]:
        raise UsageError(
            f"can't allow {unknown[0]!r}",
            why=f"there are {', '.join(ACTIONS)}, and {ALL}",
            remedy="reading needs no permission",
        )
    return frozenset(ACTIONS) if ALL in named else frozenset(named)


def serve_mcp(
    root: str | os.PathLike[str],
    *,
    allow: str = "",
    http: str | None = None,
    token: str = "",
    storage_options: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] | None = None,
) -> None:
    """Serve the runs below `root` to clients of the Model Context Protocol, until stdin ends, or a signal comes.

    `allow`: what clients may do besides reading, as a list such as `answer,pause`, or `all`. `http`: listen there (see
    `address_of`) instead of stdin and stdout. `token`: what clients must send as `Authorization: Bearer`; needed for an
    address that other machines can reach. `tell` is called with the address. UsageError if something is missing.
    """
    if importlib.util.find_spec("mcp") is None:
        raise UsageError("`satchel mcp` needs the package mcp", remedy="install it with `pip install 'satchel[mcp]'`")
    from ..http import address_of, tokens_of
    from .descriptions import Runs
    from .protocol_server import over_http, over_stdio

    place = address_of(http) if http is not None else None
    tokens = tokens_of(token)
    if place is not None and not tokens and not place.is_local:
        raise UsageError(
            f"other machines can reach {place.host}",
            why="a program that does could read all runs",
            remedy="set SATCHEL_MCP_TOKEN or --token-file, which clients have to send, or leave the host out",
        )
    runs, allowed = Runs(root, storage_options), allowed_of(allow)

    if place is None:
        over_stdio(runs, allowed)
    else:
        over_http(runs, allowed, place, tokens, tell or (lambda line: print(line, file=sys.stderr)))
