"""`--take-over`: ask before a run is taken from the process that has it."""

from __future__ import annotations

import click

from ...workspace.base import LeaseHeld
from ..control import Handle

option = click.option(
    "--take-over", is_flag=True,
    help="In a bucket: don't wait for the process that had it to show whether it lives. Asks first.",
)  # fmt: skip


def confirm(place: Handle) -> None:
    """Ask whether to take the workspace from its holder. LeaseHeld if not."""
    holder = place.holder()
    if not holder:
        return
    click.echo(f"{holder}. If it still works, it will stop before its next effect;", err=True)
    click.echo("one that it is just doing can't be stopped. What it has acknowledged is kept.", err=True)
    if not click.confirm("Take the run over?", err=True):
        raise LeaseHeld("was left to its holder", path=place.url, why=holder)
