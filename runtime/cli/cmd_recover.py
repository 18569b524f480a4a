"""`satchel recover`: repair what a crash left, without running the agent."""

from __future__ import annotations

import sys

import click

from ...workspace.errors import SatchelError
from ...workspace.looking import look
from ...workspace.opening import opened
from ...workspace.report import Report
from . import asked, takeover
from .going import refused
from .output import columns, fold, print_json, remarks
from .place import Place, find, json_option, workspace_argument
from .starting import adopt_option

_EXAMPLES = """\b
Examples:
  satchel recover my-digest     before you look at its files after a crash
"""


@click.command("recover", short_help="Repair what a crash left, without running the agent.", epilog=_EXAMPLES)
@workspace_argument
@takeover.option
@adopt_option
@json_option
def command(workspace: str | None, as_json: bool, take_over: bool, adopt: bool) -> None:
    """Bring all files of a workspace to one moment and rescue half-finished output, without running the agent.

    `run` and `resume` do the same by themselves; this is for looking at the files first.
    """
    try:
        place = find(workspace)
        if take_over:
            takeover.confirm(place)
        else:
            takeover.wait(place.store)
        report = _recover(place, adopt)
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


def _recover(place: Place, adopt: bool) -> Report:
    report = Report()
    if look(place.store).moment.seq == 0:
        report.add("found", f"a run that has not begun: there is nothing to recover. Next: {place.command('run')}")
        return report
    with opened(place.store, "recover", report, take_over=True, adopt=adopt) as workspace:
        workspace.close()
    if len(report.remarks) == 1:
        report.add("done", "nothing: all files were in order")
    return report
