"""`satchel resume`: go on with a run that was begun."""

from __future__ import annotations

import click

from . import going

_EXAMPLES = """\b
Examples:
  satchel resume my-digest
  satchel resume --traceback my-digest     if it fails again, show where
"""


@click.command("resume", short_help="Go on with a run that was begun.", epilog=_EXAMPLES)
@going.options
@click.pass_context
def command(ctx: click.Context, workspace: str | None, as_json: bool, traceback: bool, quiet: bool) -> None:
    """Go on with a run that was stopped, has crashed, failed, or has waited for a person.

    The same as `satchel run`, but it refuses to start a new one, and goes on with one that sleeps before its time.
    """
    ctx.exit(going.go(workspace, resuming=True, for_programs=as_json, quiet=quiet, with_traceback=traceback))
