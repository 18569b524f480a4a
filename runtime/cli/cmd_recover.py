"""`satchel recover`: repair what a crash left, without running the agent."""

from __future__ import annotations

import sys

import click

from ...workspace import truncating
from ...workspace.errors import SatchelError
from ...workspace.looking import look
from ...workspace.opening import opened
from ...workspace.report import Report
from . import asked, takeover
from .going import refused
from .output import columns, fold, print_json, remarks
from .place import Place, find, json_option, workspace_argument
from .starting import adopt_option
from .words import counted, visible

_EXAMPLES = """\b
Examples:
  satchel recover my-digest     before you look at its files after a crash
  satchel recover my-digest --truncate-at 41
                                if records from 42 on don't let it open
"""

_NAMED = 10
"""So many effects are named."""


@click.command("recover", short_help="Repair what a crash left, without running the agent.", epilog=_EXAMPLES)
@workspace_argument
@takeover.option
@adopt_option
@click.option(
    "--truncate-at",
    type=click.IntRange(min=1),
    metavar="SEQ",
    help="Cut the journal off behind record SEQ, if it is damaged there. Asks first, and keeps what it cuts off.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def command(
    workspace: str | None, as_json: bool, take_over: bool, adopt: bool, truncate_at: int | None, yes: bool
) -> None:  # fmt: skip
    """Bring all files of a workspace to one moment and rescue half-finished output, without running the agent.

    `run` and `resume` do the same by themselves; this is for looking at the files first. A journal that is damaged has
    a way out without a backup: `--truncate-at SEQ` goes back to record SEQ and forgets what came after it. Tasks that
    had been taken since come back into inbox/.
    """
    try:
        place = find(workspace)
        if take_over:
            takeover.confirm(place)
        else:
            takeover.wait(place.store)
        report = Report()
        if truncate_at is not None:
            _truncate(place, truncate_at, report, asks=not (yes or as_json))
        _recover(place, report, adopt)
    except SatchelError as error:
        if as_json:
            print_json(refused(error))
        raise
    moment = look(place.store).moment
    if as_json:
        print_json(
            {
                "status": "recovered", "exit_code": 0, "run_id": moment.run_id, "workspace": place.store.url,
                "run_status": moment.status, "open_questions": asked.as_json(moment, place),
                "report": [{"kind": remark.kind, "text": remark.text} for remark in report.remarks],
            }
        )  # fmt: skip
        return
    for line in remarks(report.remarks, columns(sys.stdout)):
        click.echo(line)
    for question in asked.as_words(moment, place):
        click.echo("\n".join(fold(question, columns(sys.stdout))))
    if moment.seq and moment.status != "completed":
        click.echo(f"next: {place.command('resume')}", err=True)


def _truncate(place: Place, seq: int, report: Report, *, asks: bool) -> None:
    """Cut the journal off, if that is what the person wants."""
    cut = truncating.plan(place.store, seq)
    effects = [*cut.effects[:_NAMED], *([f"{len(cut.effects) - _NAMED} more"] if len(cut.effects) > _NAMED else [])]
    forgotten = f"these effects are forgotten, and will be done again: {', '.join(effects)}" if effects else ""
    if asks:
        click.echo(visible(f"{counted(cut.records, 'record')} behind record {seq} will be cut off."), err=True)
        if forgotten:
            click.echo(visible(f"{forgotten[0].upper()}{forgotten[1:]}."), err=True)
        click.confirm("Cut them off?", abort=True, err=True)
    kept = truncating.carry_out(place.store, cut)
    report.add("done", f"{cut.says}; all files that this has changed are kept in {kept}/")
    if cut.tasks:
        report.add("done", f"{counted(len(cut.tasks), 'task')} that had been taken since lie in inbox/ again")
    if forgotten:
        report.add("found", forgotten)


def _recover(place: Place, report: Report, adopt: bool) -> None:
    if look(place.store).moment.seq == 0:
        report.add("found", f"a run that has not begun: there is nothing to recover. Next: {place.command('run')}")
        return
    with opened(place.store, "recover", report, take_over=True, adopt=adopt) as workspace:
        workspace.close()
    if len(report.remarks) == 1:
        report.add("done", "nothing: all files were in order")
