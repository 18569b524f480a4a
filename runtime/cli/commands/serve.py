"""`satchel serve`: keep the workspaces below a folder running."""

from __future__ import annotations

import json
from contextlib import nullcontext, suppress
from typing import BinaryIO

import click

from ....workspace.base import UsageError
from ...control import serve
from ...listen import listening
from ...supervision.serve import ServeEvent
from ...web import given_token
from ..options.place import complete_folders
from ..options.storage import given, storage_option
from ..render.words import one_line
from ..starting import drain_timeout_option

_COLOURS = {
    "started": "cyan",
    "listening": "cyan",
    "completed": "green",
    "failed": "red",
    "crashed": "red",
    "damaged": "red",
    "refused": "red",
    "waiting": "yellow",
    "paused": "yellow",
    "warned": "yellow",
    "late": "yellow",
    "storage": "red",
}

_TOKEN = "SATCHEL_LISTEN_TOKEN"

_EXAMPLES = """\b
Examples:
  satchel serve ~/runs
  satchel serve ~/runs --at-most 4 --drain-timeout 30s
  satchel serve s3://bucket/runs
  satchel serve ~/runs --once      start all that is due now; for cron
  satchel serve ~/runs --listen 8080

\b
Ctrl-C or SIGTERM stops all runs at a safe point, then ends with exit code 0;
a second Ctrl-C stops them by force. The log of a run is .satchel/run.log,
of a run under a URL a file in ~/.local/state/satchel/log.
"""


@click.command("serve", epilog=_EXAMPLES)
@click.argument("root", shell_complete=complete_folders)
@click.option(
    "--at-most",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many runs run at a time. [default: one for each core, at least 2]",
)
@click.option("--once", is_flag=True, help="End when no run is running or due.")
@click.option("--listen", metavar="ADDRESS", help="Take tasks by HTTP, POST /inbox/RUN: PORT, HOST:PORT or unix:PATH.")
@click.option(
    "--token-file",
    type=click.File("rb"),
    help="A file with the token of --listen. [default: what SATCHEL_LISTEN_TOKEN has]",
)
@click.option("--no-token", is_flag=True, help="With --listen on this machine: every program here may send tasks.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="Another name that --listen is reached by.")
@drain_timeout_option
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON, one a line, for programs.")
@storage_option
def command(
    root: str,
    at_most: int | None,
    once: bool,
    listen: str | None,
    token_file: BinaryIO | None,
    no_token: bool,
    names: tuple[str, ...],
    drain_timeout: float | None,
    as_json: bool,
) -> None:
    """Start the runs under ROOT that are new or were interrupted. Resume those whose question was answered, whose pause
    has ended, or whose sleep is over.

    Runs that are paused, wait for an answer, or failed need a person. Satchel notices new workspaces and changed files
    within about a second, under a URL within five. Each run has a supervisor, as with `satchel run`.
    """

    if listen is None and (no_token or token_file or names):
        raise UsageError("a token and a name are for --listen")
    if listen is not None and once:
        raise UsageError("--once ends, and --listen waits for requests", remedy="use one of them")

    def tell(event: ServeEvent) -> None:
        with suppress(OSError):  # the runs continue, although the disk of its own log is full
            say(event)

    def say(event: ServeEvent) -> None:
        if as_json:
            click.echo(json.dumps({"event": event.kind, "folder": event.folder, "text": event.text}))
            return
        kind = click.style(f"{event.kind:<12}", fg=_COLOURS.get(event.kind))
        click.echo(kind + one_line(f"{event.folder}: {event.text}" if event.text else event.folder), err=True)

    token = None if listen is None or no_token else given_token(_TOKEN, token_file)
    door = listening(root, listen, token=token, names=names, storage_options=given()) if listen else nullcontext("")
    with door as url:
        if url:
            tell(ServeEvent("listening", root, url))
        serve(root, at_most=at_most, once=once, drain_timeout=drain_timeout, tell=tell, storage_options=given())
