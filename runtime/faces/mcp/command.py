"""`satchel mcp`: serve runs to other agents."""

from __future__ import annotations

from typing import BinaryIO

import click

from ...cli import complete_folders, given, storage_option, tell
from .serving import ACTIONS, serve_mcp

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
    from ..web import given_token

    token = given_token("SATCHEL_MCP_TOKEN", token_file)
    serve_mcp(root, allow=allow, http=http, token=token, storage_options=given(), tell=tell)
