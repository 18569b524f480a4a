"""`satchel ls`: the workspaces below a folder."""

from __future__ import annotations

import os
import sys

import click

from ...workspace.below import below
from ...workspace.errors import SatchelError, UsageError
from ...workspace.store import open_store
from . import standing as facts
from .output import columns, counting, print_json, print_table
from .place import complete_folders, json_option
from .standing import Standing, stand
from .words import counted, one_line, visible

_WORTH_A_BAR = 30
_NARROW = 90  # columns below which run and time are left out
_ESSENTIAL = (0, 2, 3, 4, 6)
_WANTED = {
    "new": "run", "interrupted": "resume", "paused": "resume", "failed": "resume", "damaged": "check",
}  # fmt: skip

_EXAMPLES = """\b
Examples:
  satchel ls                       below the current folder
  satchel ls ~/runs
  satchel ls --json ~/runs | jq '.[] | select(.state == "waiting")'
"""


@click.command("ls", short_help="The workspaces below a folder.", epilog=_EXAMPLES)
@click.argument("root", default=".", shell_complete=complete_folders)
@json_option
def command(root: str, as_json: bool) -> None:
    """List the workspaces below ROOT, at any depth: where each stands and what it wants.

    Hidden folders are skipped and links are not followed. A damaged workspace is listed as damaged.
    """
    if not os.path.isdir(root):
        is_file = os.path.exists(root)
        raise UsageError("is a file, not a folder" if is_file else "no such folder", path=root)
    folders = list(below(root))
    found: list[Standing] = []
    with counting("looking", len(folders), _WORTH_A_BAR) as told:
        for number, folder in enumerate(folders):
            found.append(_look(folder))
            told(number + 1)
    if as_json:
        print_json(
            [facts.as_json(standing) | {"folder": folder} for folder, standing in zip(folders, found, strict=True)]
        )
        return
    if not found:
        click.echo(
            f"no workspaces below {visible(root)}; `satchel new --list` shows what one can be made from", err=True
        )
        return
    if sys.stdout.isatty():
        click.echo(f"{counted(len(found), 'workspace')} below {visible(root)}", err=True)
    titles = ("folder", "run", "state", "items", "inbox", "last activity (UTC)", "wanted")
    shown = _ESSENTIAL if 0 < columns(sys.stdout) < _NARROW else range(len(titles))
    rows = ([row[at] for at in shown] for row in map(_row, folders, found))
    print_table([titles[at] for at in shown], rows, flexible=0)


def _look(folder: str) -> Standing:
    try:
        return stand(open_store(folder))
    except SatchelError as error:
        return Standing(os.path.realpath(folder), problem=error)
    except Exception as error:  # whatever is wrong with this one, the others are to be listed
        what = f"can't be read ({type(error).__name__}: {error})"
        return Standing(os.path.realpath(folder), problem=SatchelError(what, path=folder))


def _row(folder: str, standing: Standing) -> tuple[str, ...]:
    progress = standing.plan.progress if standing.plan and standing.plan.tasks else None
    return (
        one_line(folder),
        one_line(standing.definition.run_id, 30) if standing.definition else "?",
        standing.state,
        f"{progress.settled}/{progress.leaves}" if progress else "-",
        str(standing.waiting or "-"),
        standing.at[:19].replace("T", " ") or "-",
        _wanted(standing),
    )


def _wanted(standing: Standing) -> str:
    if standing.moment and (questions := [*standing.moment.doubts, *standing.moment.approvals]):
        return "an answer: " + ", ".join(questions)
    if standing.has_tasks:
        return "resume"
    return _WANTED.get(standing.state, "resume" if standing.state == "waiting" else "")
