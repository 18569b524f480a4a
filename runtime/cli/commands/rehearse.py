"""`satchel rehearse`: try new code against open runs, without doing anything."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import click
import msgspec

from ...control import SEVERITY, Foreseen, Rehearsed, open_all, rehearse_all, rehearse_here
from ...supervision.child import EXIT_CODES
from ..options.place import complete_folders, find, is_workspace, json_option
from ..render.output import columns, fold, print_json
from ..render.words import visible

_EXAMPLES = """\b
Examples:
  satchel rehearse ~/runs --code ./new      # all runs under a folder
  satchel rehearse ~/runs/digest --json     # with the code as it is now
"""

_CODES = {
    "same": EXIT_CODES["completed"],
    "gone": EXIT_CODES["completed"],
    "again": EXIT_CODES["paused"],
    "leaves": EXIT_CODES["paused"],
    "asks": EXIT_CODES["waiting"],
    "refused": 2,
    "fails": EXIT_CODES["failed"],
}
_COLOURS = {
    "same": "green",
    "gone": "yellow",
    "again": "yellow",
    "leaves": "yellow",
    "asks": "yellow",
    "refused": "red",
    "fails": "red",
}
_TITLE = 9  # columns


@click.command("rehearse", epilog=_EXAMPLES)
@click.argument("where", metavar="WS|ROOT", default=".", shell_complete=complete_folders)
@click.option("--code", metavar="FOLDER", help="The new code. [default: the code that a start would import now]")
@click.option("--here", is_flag=True, hidden=True, help="Rehearse in this process, over a folder that may be changed.")
@json_option
def command(where: str, code: str | None, here: bool, as_json: bool) -> None:
    """Try new code against open runs before you deploy it. Nothing in their folders changes.

    A copy of each run is entered in a process of its own, without the secrets of the environment. Recorded calls return
    their results; at any other step, effect, question or resource that branch ends. THIS RUNS CODE: the imports and the
    agent's own lines, from FOLDER or from the run. So it is not for strangers' folders.

    The exit code tells the worst: 0 same, 3 finished steps run again or items stay open, 4 a person is asked, 2
    refused, 1 the code fails.
    """
    if here:
        with contextlib.redirect_stdout(sys.stderr):
            only = rehearse_here(find(where).store)
        print_json(msgspec.to_builtins(only), indent=None)
        sys.exit(_CODES[only.verdict])
    handles = [find(where)] if is_workspace(where) else open_all(where)
    if not handles:
        click.echo(f"there are no runs under {visible(where)}", err=True)
    found = list[Rehearsed]()
    names = {handle.url: handle.named for handle in handles} if len(handles) > 1 else {}
    for each in rehearse_all([handle.store for handle in handles], code):
        found.append(each)
        for line in () if as_json else _lines(each, names.get(each.url, ""), columns(sys.stdout)):
            click.echo(line)
    worst = max((each.verdict for each in found), key=SEVERITY.index, default="same")
    if as_json:
        print_json({"runs": [msgspec.to_builtins(each) for each in found], "exit_code": _CODES[worst]})
    elif len(found) > 1:
        counts = {name: sum(each.verdict == name for each in found) for name in SEVERITY}
        click.echo(", ".join(f"{number} {name}" for name, number in counts.items() if number), err=True)
    sys.exit(_CODES[worst])


def _lines(found: Rehearsed, folder: str, width: int) -> Iterator[str]:
    """One line for a run, folded if it is long. Several runs are told by `folder`: copies have the same run_id."""
    said = [f"{each.words}{f' ({each.item!r})' if each.item else ''}" for each in _worth(found)]
    said += [found.problem] if found.problem else []
    first, *more = fold(f"{folder or found.run_id or found.url}: {'; '.join(said) or 'nothing is open'}", width, _TITLE)
    yield f"{click.style(f'{found.verdict:<{_TITLE}}', fg=_COLOURS[found.verdict])}{visible(first)}"
    yield from (f"{'':<{_TITLE}}{visible(line)}" for line in more)


def _worth(found: Rehearsed) -> list[Foreseen]:
    """What the line says: not the next work, if there is anything else."""
    return [each for each in found.findings if each.kind != "next"] or found.findings
