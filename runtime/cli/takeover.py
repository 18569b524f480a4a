"""`--take-over`: ask before a run is taken from the process that has it."""

from __future__ import annotations

import click

from ...workspace.base import LeaseHeld
from ..control import Handle

option = click.option(
    "--take-over",
    is_flag=True,
    help="In a bucket: take the run from its last process without waiting for a heartbeat. Asks first.",
)


def confirm(place: Handle) -> None:
    """Ask whether to take the workspace from its holder. LeaseHeld if not."""
    holder = place.holder()
    if not holder:
        return
    click.echo(f"{holder}. If that process still runs, it will stop before its next effect.", err=True)
    click.echo("An effect that it has already started can't be stopped. What it recorded is kept.", err=True)
    if not click.confirm("Take the run over?", err=True):
        raise LeaseHeld("was not taken over", path=place.url, why=holder)
