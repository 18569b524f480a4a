"""`satchel watch`: runs in a terminal, live."""

from __future__ import annotations

import importlib.util

import click

from ....workspace.base import Refused
from ...cli import complete_folders, given, storage_option

_EXAMPLES = """\b
Examples:
  satchel watch my-digest          one run
  satchel watch ~/runs             all runs under a folder
  satchel watch s3://bucket/runs
  NO_COLOR=1 satchel watch ~/runs  without colours
"""


@click.command("watch", epilog=_EXAMPLES, short_help="Show a run, or all runs under a folder, live in the terminal.")
@click.argument("root", default=".", shell_complete=complete_folders, metavar="[WS|ROOT]")
@storage_option
def command(root: str) -> None:
    """Show a run in the terminal as it works, or all runs under a folder or URL. Keys answer, pause, resume, stop and
    send work; `?` lists them.

    Leaving with `q` stops no run. Needs a terminal: elsewhere use `satchel log -f` and `satchel status --json`.
    """
    if importlib.util.find_spec("textual") is None:
        raise Refused("`satchel watch` needs textual", remedy="install it with `pip install 'satchel[watch]'`")
    from . import watch

    watch(root, storage_options=given())
