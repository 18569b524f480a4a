"""`satchel serve`: keep the workspaces below a folder running."""

from __future__ import annotations

import json
from contextlib import suppress

import click

from ...control import serve
from ...supervision.serve import Event
from ..options.place import complete_folders
from ..options.storage import given, storage_option
from ..render.words import one_line
from ..starting import drain_timeout_option

_COLOURS = {"started": "cyan", "completed": "green", "failed": "red", "crashed": "red", "damaged": "red",
            "refused": "red", "waiting": "yellow", "paused": "yellow",
            "warned": "yellow", "late": "yellow", "storage": "red"}  # fmt: skip

_EXAMPLES = """\b
Examples:
  satchel serve ~/runs
  satchel serve ~/runs --at-most 4 --drain-timeout 30s
  satchel serve s3://bucket/runs
  satchel serve ~/runs --once      all that is due now, as from cron

\b
Ctrl-C or SIGTERM stops all runs so that they can go on, and ends it with 0;
a second Ctrl-C stops them hard. What a run says is in its .satchel/run.log;
of one below a URL it is in ~/.local/state/satchel/log.
"""


@click.command("serve", epilog=_EXAMPLES)
@click.argument("root", shell_complete=complete_folders)
@click.option(
    "--at-most",
    type=click.IntRange(min=1),
    metavar="N",
    help="Runs at a time. Else one for each core, and at least 2.",
)
@click.option("--once", is_flag=True, help="End when nothing runs and nothing is due.")
@drain_timeout_option
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON, one a line, for programs.")
@storage_option
def command(root: str, at_most: int | None, once: bool, drain_timeout: float | None, as_json: bool) -> None:
    """Start what is new or was interrupted below ROOT, and go on with what was answered, is let go on, or has slept.

    What is paused, waits for an answer or has failed is left to a person. New workspaces and changed files are noticed
    within about a second, below a URL within five. Each run is looked after as by `satchel run`.
    """

    def tell(event: Event) -> None:
        with suppress(OSError):  # the runs go on, though the disk of its own log is full
            say(event)

    def say(event: Event) -> None:
        if as_json:
            click.echo(json.dumps({"event": event.kind, "folder": event.folder, "text": event.text}))
            return
        kind = click.style(f"{event.kind:<12}", fg=_COLOURS.get(event.kind))
        click.echo(kind + one_line(f"{event.folder}: {event.text}" if event.text else event.folder), err=True)

    serve(root, at_most=at_most, once=once, drain_timeout=drain_timeout, tell=tell, storage_options=given())
