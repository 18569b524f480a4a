"""`satchel merge`: show and resolve conflicts of files and the run."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from typing import Literal

import click
import msgspec
from msgspec.structs import asdict

from ....workspace.people.edits import Question
from ...control import Handle, Merging, of_error
from ...supervision.child import EXIT_CODES
from ..options.place import find, json_option, workspace_argument
from ..render.output import columns, fold, print_json, remarks
from ..render.words import counted, visible

_DIFF_LINES = 60

_EFFECTS = {
    "theirs": "use the file where the two differ",
    "ours": "use the run; keep the file's version as NAME.rejected.EXT",
    "edited": "use the whole file as it is",
}

_EXAMPLES = """\b
Examples:
  satchel merge my-digest                 show both versions
  satchel merge my-digest --use theirs    use the file where they differ
  satchel merge my-digest --use ours      use the run (your version is kept)
  satchel merge my-digest --use edited    use the whole file as it is now
"""


@click.command("merge", epilog=_EXAMPLES)
@workspace_argument
@click.option(
    "--use",
    "side",
    type=click.Choice(["ours", "theirs", "edited"]),
    help="Where they differ, use the run (ours) or the file (theirs); or use the whole file as it is now (edited).",
)
@click.option(
    "--file", "files", multiple=True, metavar="PATH", help="Only this file. [default: all files with conflicts]"
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    workspace: str | None,
    side: Literal["ours", "theirs", "edited"] | None,
    files: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show where an edited file and the run conflict, and resolve the conflict.

    Changes that do not conflict are always merged. Without --use, nothing changes. A version that is not used is kept
    next to the file, as NAME.rejected.EXT. A file that is missing, empty or older resolves nothing: what you wrote
    stays in conflicts/ until you resolve the conflict here, or save a file that merges. Exit code 4 while a conflict is
    open, 2 if a file was refused.
    """
    place = find(workspace)
    found = place.merge(side, files=files)
    if not found.settled:
        _show(place, found, as_json=as_json)
        ctx.exit(2 if found.refused else EXIT_CODES["waiting"] if found.open else 0)
    if as_json:
        print_json(
            {
                "settled": list(found.settled),
                "use": side,
                "open": [each.path for each in found.open],
                "report": [msgspec.to_builtins(each) for each in found.report],
            }
        )
    else:
        for line in remarks(found.report[1:], columns(sys.stdout)):
            click.echo(line)
        for each in found.open:
            click.echo(f"{click.style('conflict', fg='yellow')} {visible(each.path)}: {visible(each.places[0])}")
        click.echo(f"next: {place.command('merge' if found.open else 'resume')}", err=True)
    ctx.exit(EXIT_CODES["waiting"] if found.open else 0)


def _show(place: Handle, found: Merging, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "conflicts": [{"path": each.path, "places": list(each.places)} for each in found.conflicts],
                "refused": [asdict(problem) for error in found.refused for problem in of_error(error)],
                "merged": found.merged,
            }
        )
        return
    width = columns(sys.stdout)
    for problem in (problem for error in found.refused for problem in of_error(error)):
        click.echo("\n".join(fold(f"refused  {problem}", width, 9)))
    for said in found.merged:
        click.echo("\n".join(fold(visible(f"merged   {said}"), width, 9)))
    for line in (line for conflict in found.conflicts for line in _told(conflict)):
        click.echo(line)
    if found.conflicts:
        click.echo(f"{counted(len(found.conflicts), 'file')} with conflicts:")
        for side, effect in _EFFECTS.items():
            click.echo(f"  {place.command('merge', '--use', side)}: {effect}")
    elif not found.refused and not found.merged:
        click.echo("nothing to merge: the files and the run agree")


def _told(question: Question) -> Iterator[str]:
    yield click.style(f"conflict {visible(question.path)}", fg="yellow")
    for place in question.places:
        yield visible(f"  {place}")
    ours, theirs = (data.decode(errors="replace").splitlines() for data in (question.ours, question.theirs))
    lines = [*difflib.unified_diff(ours, theirs, "ours (the run)", "theirs (the file)", n=1, lineterm="")]
    for line in lines[:_DIFF_LINES]:
        colour = {"+": "green", "-": "red"}.get(line[:1])
        yield click.style(f"    {visible(line)}", fg=colour)
    if len(lines) > _DIFF_LINES:
        yield f"    and {len(lines) - _DIFF_LINES} more lines"
