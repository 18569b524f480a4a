"""Effects that were done since an earlier moment: a line for each, and the question whether to do them again."""

from __future__ import annotations

import sys

import click
import msgspec

from ....workspace.base import UsageError
from ....workspace.state import LaterEffect
from .words import counted, since, visible

REUSE = "Equal calls of later steps return their results, so only what depends on a change is done again."


def told(effects: tuple[LaterEffect, ...], *, forgotten: bool) -> list[str]:
    """A line for each effect. If there is none to forget, that is said: a return to an item goes to before it began for
    the last time."""
    lines = [] if effects or not forgotten else ["  no effect was done since then, so none is done again"]
    for each in effects:
        at = f" of {since(each.at)}" if each.at else ""
        kept = "stays done, if an item of this name comes again" if each.is_gone else "stays done"
        how = "in doubt" if each.is_in_doubt else "done again" if forgotten else kept
        where = f" in {each.title!r}" if each.title else ""
        lines.append(visible(f"  effect {each.call}{at}{where}: {how}"))
    return lines


def as_rows(effects: tuple[LaterEffect, ...]) -> list[object]:
    return [msgspec.to_builtins(each) for each in effects]


def confirm_again(effects: tuple[LaterEffect, ...], *, can_ask: bool) -> None:
    """Ask whether these effects may be done again. UsageError where no person can answer."""
    due = [each for each in effects if not each.is_in_doubt]
    if not due:
        return
    if not (can_ask and sys.stdin.isatty()):
        raise UsageError(
            f"{counted(len(due), 'effect')} would be done again",
            why=", ".join(visible(each.call) for each in due[:9]),
            remedy="confirm it with --yes",
        )
    for line in told(tuple(due), forgotten=True):
        click.echo(line, err=True)
    click.confirm(f"Do {counted(len(due), 'effect')} again?", abort=True, err=True)
