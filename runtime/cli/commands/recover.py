"""`satchel recover`: repair what a crash left, without running the agent."""

from __future__ import annotations

import sys

import click

from ....workspace.lifecycle import Cut
from ...control import forgotten
from .. import adopting, takeover
from ..options.place import find, json_option, workspace_argument
from ..render import asked
from ..render.output import columns, fold, print_json, remarks
from ..render.words import counted, visible
from ..starting import adopt_option

_EXAMPLES = """\b
Examples:
  satchel recover my-digest     before you look at its files after a crash
  satchel recover my-digest --truncate-at 41
                                if record 42 or a later one is damaged
"""


@click.command("recover", epilog=_EXAMPLES)
@workspace_argument
@takeover.option
@adopt_option
@click.option(
    "--truncate-at",
    type=click.IntRange(min=1),
    metavar="SEQ",
    help="Cut the journal off after record SEQ, if it is damaged there. Asks first, and keeps what it cuts off.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
def command(
    workspace: str | None, as_json: bool, take_over: bool, adopt: bool, truncate_at: int | None, yes: bool
) -> None:
    """Repair the files of a workspace and rescue half-finished output, without running the agent.

    `run` and `resume` do the same by themselves. Use this to look at the files first. If the journal is damaged and you
    have no backup, `--truncate-at SEQ` goes back to record SEQ and forgets all later records. Tasks that the run took
    after that record come back into inbox/.
    """
    place = find(workspace)
    if adopt:
        adopting.confirm(place, asks=not (yes or as_json))
    if take_over:
        takeover.confirm(place)
    cut = _confirmed(place.plan_cut(truncate_at), asks=not (yes or as_json)) if truncate_at is not None else None
    found = place.recover(truncate_at=cut, take_over=take_over, adopt=adopt)
    if as_json:
        print_json(
            {
                "status": found.status,
                "exit_code": 0,
                "run_id": found.run_id,
                "url": found.url,
                "has_begun": found.has_begun,
                "questions": asked.as_json(found.questions),
                "report": [{"kind": remark.kind, "text": remark.text} for remark in found.report],
            }
        )
        return
    for line in remarks(found.report, columns(sys.stdout)):
        click.echo(line)
    for question in asked.as_words(found.questions, place):
        click.echo("\n".join(fold(question, columns(sys.stdout))))
    if found.has_begun and found.status != "completed":
        click.echo(f"next: {place.command('resume')}", err=True)


def _confirmed(cut: Cut, *, asks: bool) -> Cut:
    """Cut the journal only if the person confirms it."""
    if asks:
        click.echo(visible(f"{counted(cut.records, 'record')} after record {cut.seq} will be cut off."), err=True)
        if said := forgotten(cut):
            click.echo(visible(f"{said[0].upper()}{said[1:]}."), err=True)
        click.confirm("Cut them off?", abort=True, err=True)
    return cut
