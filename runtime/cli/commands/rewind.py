"""`satchel rewind`: return a run to an earlier record."""

from __future__ import annotations

import sys

import click

from ...control import Rewinding
from ..options.place import find, json_option, workspace_argument
from ..options.position import complete_moment
from ..render import asked
from ..render.effects import REUSE, as_rows, confirm_again, told
from ..render.output import columns, fold, print_json, remarks
from ..render.words import visible

_EXAMPLES = """\b
Examples:
  satchel rewind my-digest --to ^3 --dry-run   show what it would do
  satchel rewind my-digest --to ^3             return to before item 3
  satchel rewind my-digest --to 41 --forget    do later effects again
"""


@click.command("rewind", epilog=_EXAMPLES)
@workspace_argument
@click.option(
    "--to",
    required=True,
    metavar="SEQ|ITEM|CHECKPOINT",
    shell_complete=complete_moment,
    help="A record's number, an item such as ^3 (its beginning), or a file in checkpoints/.",
)
@click.option("--forget", is_flag=True, help="Do effects since then again, under a new idempotency key. Asks first.")
@click.option("--reuse", is_flag=True, help=REUSE)
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@click.option("--by", metavar="NAME", help="Who asks for it. [default: user@host]")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
def command(
    workspace: str | None, to: str, forget: bool, reuse: bool, dry_run: bool, by: str | None, yes: bool, as_json: bool
) -> None:
    """Return a run to an earlier record.

    Data, plan and the results of steps are those of that record, and what came after it is done again. Nothing is
    deleted: the return is one more record, and another rewind can undo it. Effects since then stay done: an equal call
    returns its recorded result, and an unequal one is asked about. With --forget they are done again.
    """
    place = find(workspace)
    if forget and not dry_run and not yes:
        planned = place.rewind(to=to, forget=True, dry_run=True, by=by)
        confirm_again(planned.effects, can_ask=not as_json)
    found = place.rewind(to=to, forget=forget, reuse=reuse, dry_run=dry_run, by=by)
    if as_json:
        print_json(
            {
                "to": found.to,
                "is_done": found.is_done,
                "says": found.says,
                "effects": as_rows(found.effects),
                "forgotten": found.forgotten,
                "status": found.status,
                "run_id": found.run_id,
                "url": found.url,
                "questions": asked.as_json(found.questions),
                "report": [{"kind": remark.kind, "text": remark.text} for remark in found.report],
            }
        )
        return
    _show(found)
    if found.is_done:
        for question in asked.as_words(found.questions, place):
            click.echo("\n".join(fold(question, columns(sys.stdout))))
        click.echo(f"next: {place.command('resume')}", err=True)


def _show(found: Rewinding) -> None:
    width = columns(sys.stdout)
    for line in remarks(found.report[1:], width):
        click.echo(line)
    click.echo(f"{'returned' if found.is_done else 'would return'} to record {found.to:,}")
    for say in found.says:
        click.echo("\n".join(fold(visible(f"  {say}"), width, 4)))
    for line in told(found.effects, forgotten=found.forgotten):
        click.echo("\n".join(fold(line, width, 4)))
