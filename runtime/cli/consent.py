"""What a start asks at a terminal: to adopt a copy, to take a run over, what to do with files of a checkpoint."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from ...workspace.base import LeaseHeld, SatchelError, UsageError, visible
from ..api import Handle

if TYPE_CHECKING:
    from ..api import OpenQuestion

adopt_option = click.option(
    "--adopt",
    is_flag=True,
    help="Continue here, although this may be a copy of a run elsewhere. Says what is there, and asks at a terminal.",
)
end_other_option = click.option(
    "--end-other",
    is_flag=True,
    help="With --adopt: end the run at its other place, if that can be reached. Nothing starts there any more.",
)


def confirm_adoption(place: Handle, *, ends_other: bool = False, reaches_out: bool = False, asks: bool = True) -> None:
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


take_over_option = click.option(
    "--take-over",
    is_flag=True,
    help="In a bucket: take the run from its last process without waiting for a heartbeat. Asks first.",
)


def confirm_take_over(place: Handle) -> None:
    """Ask whether to take the workspace from its holder. LeaseHeld if not."""
    holder = place.holder()
    if not holder:
        return
    click.echo(f"{holder}. If that process still runs, it will stop before its next effect.", err=True)
    click.echo("An effect that it has already started can't be stopped. What it recorded is kept.", err=True)
    agrees = False
    with suppress(click.Abort):  # no person is there to be asked
        agrees = click.confirm("Take the run over?", err=True)
    if not agrees:
        raise LeaseHeld("was not taken over", path=place.url, why=holder)


def ask_about_copies(place: Handle) -> bool:
    """Ask and record the answer. False where no person can answer, or nothing of the kind is asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    question = next(filter(_is_about_copies, place.questions()), None)
    if question is None:
        return False
    click.echo(visible(question.text), err=True)
    decision = click.prompt("Your answer", type=click.Choice(question.choices), err=True)
    for remark in place.answer(decision, question.id).report:
        click.echo(visible(f"{remark.kind}  {remark.text}"), err=True)
    return True


def _is_about_copies(question: OpenQuestion) -> bool:
    from ...workspace.journal.records import ApprovalAsked  # most runs ask nothing

    asked = question.question.asked
    return isinstance(asked, ApprovalAsked) and asked.back is not None
