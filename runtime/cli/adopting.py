"""`--adopt`: ask before a copy of a run continues while another place may still have it."""

from __future__ import annotations

import sys

import click

from ...workspace.base import SatchelError, UsageError
from ..control import Handle
from .render.words import visible

end_other_option = click.option(
    "--end-other",
    is_flag=True,
    help="With --adopt: end the run at its other place, if that can be reached. Nothing starts there any more.",
)


def confirm(place: Handle, *, ends_other: bool = False, reaches_out: bool = False, asks: bool = True) -> None:
    """Say what an adoption does, ask at a terminal, and end the run at the other place if the person says so. Unless it
    `reaches_out`, as a start does, no other storage is contacted."""
    from ...workspace.inspect import look  # a supervisor reads no run
    from ...workspace.lifecycle import adopt

    try:
        other = adopt.other(place.store, look(place.store).moment, reaches_out=reaches_out)
    except SatchelError:
        return  # the command itself says what is wrong
    if other is None:
        return
    click.echo(visible(f"{other.says}."), err=True)
    if not other.url:
        click.echo(
            "That place can't be reached, so nothing stops the run there: make sure that it never runs.", err=True
        )
    elif not ends_other:
        click.echo(visible(f"The run at {other.url} is left as it is, and can go on."), err=True)
    if asks and sys.stdin.isatty():
        if not click.confirm("Continue the run here?", err=True):
            raise UsageError("was not adopted", path=place.url, why="nothing was changed, here or there")
        if other.url and not ends_other:
            ends_other = click.confirm(visible(f"End it at {other.url} for good?"), err=True)
    if ends_other:
        click.echo(visible(f"ended the run at {place.end_other()}: nothing starts there any more"), err=True)
