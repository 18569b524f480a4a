"""`satchel resume`: continue a run that has begun."""

from __future__ import annotations

from typing import Any

import click

from .. import starting
from ..options.wish import Wish

_EXAMPLES = """\b
Examples:
  satchel resume my-digest
  satchel resume --traceback my-digest     if it fails again, show where
"""


@click.command("resume", epilog=_EXAMPLES)
@starting.options
@click.option(
    "--from-checkpoint",
    is_flag=True,
    help="First go back to the last known-good checkpoint. Later work is done again, except effects and answers.",
)
@click.pass_context
def command(ctx: click.Context, /, **typed: Any) -> None:
    """Resume a run that was stopped, crashed, failed, or waited for a person.

    If the run has been asked to pause and has not stopped yet, this withdraws the pause, and its process continues.
    Else like `satchel run`, but this also ends a pause, whatever its reason, and a sleep before its time. It does not
    start a new run.
    """
    ctx.exit(starting.start("resume", Wish(**typed)))
