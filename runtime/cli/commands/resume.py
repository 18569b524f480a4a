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
    help="Go back to the last known-good checkpoint first. What was done since is done again, but effects and answers.",
)
@click.pass_context
def command(ctx: click.Context, /, **typed: Any) -> None:
    """Go on with a run that was stopped, has crashed, failed, or has waited for a person.

    The same as `satchel run`, but it lifts a pause, whatever its reason, and goes on with one that sleeps before its
    time. It refuses to start a new one.
    """
    ctx.exit(starting.start("resume", Wish(**typed)))
