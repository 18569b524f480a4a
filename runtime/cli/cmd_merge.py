"""`satchel merge`: what the files and the run contradict each other in, and who is right."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Literal

import click
import msgspec

from ...workspace import lease
from ...workspace.edits import Noticed, Question, Side, notice
from ...workspace.errors import UsageError
from ...workspace.looking import look
from ...workspace.opening import opened
from ...workspace.report import Report
from ..supervision.child import EXIT_CODES
from . import takeover
from .finding import of_error
from .output import columns, fold, print_json, remarks
from .place import Place, find, json_option, look_again, workspace_argument
from .words import counted, visible

_DIFF_LINES = 60
_LOOKS = 5

_EFFECTS = {
    "theirs": "take what the file says where the two differ",
    "ours": "discard that; it is kept as NAME.rejected.EXT",
    "edited": "take the file as it is, in every respect",
}

_EXAMPLES = """\b
Examples:
  satchel merge my-digest                 show both versions
  satchel merge my-digest --use theirs    where they differ, the file is right
  satchel merge my-digest --use ours      discard your version (it is kept)
  satchel merge my-digest --use edited    take the file as it is now
"""


@click.command("merge", short_help="Settle what a file and the run contradict each other in.", epilog=_EXAMPLES)
@workspace_argument
@click.option("--use", "side", type=click.Choice(["ours", "theirs", "edited"]),
              help="Who is right where they differ: the run (ours), the file (theirs), or the file as it is now, in "
              "every respect (edited).")  # fmt: skip
@click.option(
    "--file", "files", multiple=True, metavar="PATH", help="Only this file. [default: all that are asked about]"
)
@json_option
@click.pass_context
def command(
    ctx: click.Context, workspace: str | None, side: Literal["ours", "theirs", "edited"] | None,
    files: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Show where an edited file and the run contradict each other, and settle it.

    What does not conflict is merged in any case. Without --use nothing is changed. What is not taken is kept beside
    the file, as NAME.rejected.EXT. A file that is missing, empty or older settles nothing: what you wrote is kept in
    conflicts/ until you settle it here, or save a file that merges. Exit code 4 while something is still asked, 2 if
    a file was refused.
    """
    place = find(workspace)
    noticed = _notice(place)
    asked = {question.path: question for question in noticed.questions}
    if unknown := [path for path in files if path not in asked]:
        raise UsageError(
            f"nothing is asked about {unknown[0]}", path=place.store.url,
            remedy=f"asked about: {', '.join(asked)}" if asked else "nothing is asked at all: `satchel resume` goes on",
        )  # fmt: skip
    if side is None or not asked:
        _show(place, noticed, as_json=as_json)
        ctx.exit(2 if noticed.refusals else EXIT_CODES["waiting"] if asked else 0)
    settled = list(dict.fromkeys(files or asked))
    report = _settle(place, dict.fromkeys(settled, side))
    still_asked = [path for path in asked if path not in settled]
    if as_json:
        print_json(
            {
                "settled": settled,
                "use": side,
                "still_asked": still_asked,
                "report": [msgspec.to_builtins(each) for each in report.remarks],
            }
        )
    else:
        for line in remarks(report.remarks[1:], columns(sys.stdout)):
            click.echo(line)
        for path in still_asked:
            click.echo(f"{click.style('asked', fg='yellow')}    {visible(path)}: {visible(asked[path].places[0])}")
        click.echo(f"next: {place.command('merge' if still_asked else 'resume')}", err=True)
    ctx.exit(EXIT_CODES["waiting"] if still_asked else 0)


def _notice(place: Place) -> Noticed:
    store = place.store
    for _ in range(_LOOKS):
        seen = look(store)
        noticed = notice(store, seen.moment, seen.definition, is_rebuilt=seen.is_rebuilt)
        if not noticed.refusals or lease.holder(store) is None:
            break
        look_again(store, 0.1)  # its files may have gone on since the journal was looked at
    return noticed


def _settle(place: Place, choices: dict[str, Side]) -> Report:
    report = Report()
    takeover.wait(place.store)
    with opened(place.store, "merge", report, choices=choices, take_over=True) as workspace:
        workspace.close()
    return report


def _show(place: Place, noticed: Noticed, *, as_json: bool) -> None:
    if as_json:
        would = [f"{each.record.file}: {say}" for each in noticed.edits for say in each.record.says]
        print_json(
            {
                "questions": [{"file": each.path, "places": list(each.places)} for each in noticed.questions],
                "refused": [asdict(found) for each in noticed.refusals for found in of_error(each.error)],
                "an_opening_would": would,
            }
        )  # fmt: skip
        return
    width = columns(sys.stdout)
    for refusal in noticed.refusals:
        for found in of_error(refusal.error):
            click.echo("\n".join(fold(f"refused  {found}", width, 9)))
    for edit in noticed.edits:
        for say in edit.record.says:
            click.echo("\n".join(fold(visible(f"merged   {edit.record.file}: {say}"), width, 9)))
    for question in noticed.questions:
        for line in _told(question):
            click.echo(line)
    if noticed.questions:
        count = counted(len(noticed.questions), "file")
        click.echo(f"{count} to settle:")
        for side, effect in _EFFECTS.items():
            click.echo(f"  {place.command('merge', '--use', side)}: {effect}")
    elif not noticed.refusals and not noticed.edits:
        click.echo("nothing to merge: the files and the run agree")


def _told(question: Question) -> Iterator[str]:
    yield click.style(f"asked    {visible(question.path)}", fg="yellow")
    for place in question.places:
        yield visible(f"  {place}")
    ours, theirs = (data.decode(errors="replace").splitlines() for data in (question.ours, question.theirs))
    lines = [*difflib.unified_diff(ours, theirs, "ours (the run)", "theirs (the file)", n=1, lineterm="")]
    for line in lines[:_DIFF_LINES]:
        colour = {"+": "green", "-": "red"}.get(line[:1])
        yield click.style(f"    {visible(line)}", fg=colour)
    if len(lines) > _DIFF_LINES:
        yield f"    and {len(lines) - _DIFF_LINES} more lines"
