"""`satchel run`: start a run, or continue it."""

from __future__ import annotations

from typing import Any

import click

from .. import starting
from ..options.wish import Wish

_EXAMPLES = """\b
Examples:
  satchel run my-digest
  satchel run                      in the folder of the workspace
  satchel run --json my-digest     the outcome as JSON on stdout

\b
Ctrl-C stops the run; you can resume it. Exit codes: 0 completed, 1 failed,
2 refused, 3 paused, 4 waiting for a person, 5 sleeping, 6 another process
has the run, 7 cancelled, 8 the storage failed.
"""


@click.command("run", epilog=_EXAMPLES)
@starting.options
@click.pass_context
def command(ctx: click.Context, /, **typed: Any) -> None:
    """Run the agent of a workspace until it completes, fails, or needs a person.

    A run that was stopped or killed continues where it was. It does not repeat finished work. A run that is paused, or
    that sleeps until a time, does not start.
    """
    ctx.exit(starting.start("run", Wish(**typed)))
