"""`satchel resume`: continue a run that has begun."""

from __future__ import annotations

from typing import Any

import click

from ....workspace.base import UsageError
from ...control import open_all, undo_all
from .. import starting
from ..options.place import all_option, tell
from ..options.storage import given
from ..options.wish import Wish
from ..render.output import print_json
from ..render.words import counted, visible

_EXAMPLES = """\b
Examples:
  satchel resume my-digest
  satchel resume --traceback my-digest     if it fails again, show where
  satchel resume --all ~/runs --stopped-by "wrong recipients"
"""


@click.command("resume", epilog=_EXAMPLES)
@starting.options
@click.option(
    "--from-checkpoint",
    is_flag=True,
    help="First go back to the last known-good checkpoint. Later work is done again, except effects and answers.",
)
@all_option("With --stopped-by: all workspaces under ROOT (default: the current folder).")
@click.option("--stopped-by", "reason", metavar="REASON", help="Undo `satchel stop --all ROOT --reason REASON`.")
@click.pass_context
def command(ctx: click.Context, /, root: str | None, reason: str | None, **typed: Any) -> None:
    """Resume a run that was stopped, crashed, failed, or waited for a person.

    If the run has been asked to pause and has not stopped yet, this withdraws the pause, and its process continues.
    Else like `satchel run`, but this also ends a pause, whatever its reason, and a sleep before its time. It does not
    start a new run.

    --all ROOT --stopped-by REASON starts nothing. It undoes an emergency stop of many runs: each that was stopped for
    this reason goes on at its next start.
    """
    if (root is None) != (reason is None):
        raise UsageError("--all and --stopped-by belong together", remedy="to resume one run, name its workspace only")
    if root is not None and reason is not None:
        if typed["workspace"] is not None:
            raise UsageError("name a workspace, or --all and a folder, not both")
        ctx.exit(_undo_all(root, reason, typed["as_json"]))
    ctx.exit(starting.start("resume", Wish(**typed)))


def _undo_all(root: str, reason: str, as_json: bool) -> int:
    places = open_all(root, storage_options=given(), tell=tell)
    undone = undo_all(places, reason)
    if as_json:
        print_json([{"url": each.url, "resumes": not each.why, "why": each.why} for each in undone])
        return 1 if any(each.why for each in undone) else 0
    for each in undone:
        word, colour = ("not undone", "red") if each.why else ("undone", "green")
        click.echo(f"{click.style(f'{word:<12}', fg=colour)}{visible(each.url)}{visible(each.why and f': {each.why}')}")
    count = sum(not each.why for each in undone)
    click.echo(f"{counted(count, 'run')} of {len(places)} under {visible(root)} may go on", err=True)
    if count:
        click.echo("next: `satchel serve` on that folder starts them, `satchel resume WS` starts one", err=True)
    return 1 if len(undone) > count else 0
