"""`satchel cancel`: end runs for good."""

from __future__ import annotations

import click

from ..options.place import complete_folders, json_option
from ..options.storage import storage_option
from ..render.words import counted
from .pause import ask_all

_EXAMPLES = """\b
Examples:
  satchel cancel my-digest --reason "not needed any more"
  satchel cancel --yes runs/*
"""


@click.command("cancel", epilog=_EXAMPLES)
@click.argument("workspaces", nargs=-1, required=True, metavar="WS...", shell_complete=complete_folders)
@click.option("--reason", default="cancelled", show_default=True, help="Why.")
@click.option("--by", metavar="NAME", help="Who asks for it. [default: user@host]")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--wait", is_flag=True, help="Return only when the runs have ended.")
@json_option
@storage_option
@click.pass_context
def command(
    ctx: click.Context, workspaces: tuple[str, ...], reason: str, by: str | None, yes: bool, wait: bool, as_json: bool
) -> None:
    """End the run of each workspace for good, at its next safe point.

    Like a pause, but final. If the agent has an `on_cancel`, that undoes what must not stay half done. The results so
    far stay in the folder.
    """
    if not (yes or as_json):
        click.confirm(f"End {counted(len(workspaces), 'run')} for good?", abort=True)
    ctx.exit(ask_all(workspaces, lambda place: place.cancel(reason=reason, by=by), wait=wait, as_json=as_json))
