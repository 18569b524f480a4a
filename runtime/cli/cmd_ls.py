"""`satchel ls`: the workspaces below a folder."""

from __future__ import annotations

import os
import sys

import click

from ...workspace import duplicates, urls
from ...workspace.below import below, below_store
from ...workspace.errors import SatchelError
from ...workspace.store import Store, open_store
from . import standing as facts
from .output import columns, counting, print_json, print_table
from .place import complete_folders, json_option, root_of
from .standing import Standing, stand
from .storage import storage_option
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
  satchel ls s3://bucket/runs
  satchel ls --json ~/runs | jq '.[] | select(.state == "waiting")'
"""


@click.command("ls", short_help="The workspaces below a folder.", epilog=_EXAMPLES)
@click.argument("root", default=".", shell_complete=complete_folders)
@json_option
@storage_option
def command(root: str, as_json: bool) -> None:
    """List the workspaces below ROOT, a folder or URL, at any depth: where each stands and what it wants.

    Hidden folders are skipped and links are not followed. A damaged workspace is listed as damaged.
    """
    store = root_of(root)
    below_it: list[Store | str] = list(
        below(urls.local(root), with_moved=True) if store is None else below_store(store, with_moved=True)
    )
    folders = [each if isinstance(each, str) else each.url for each in below_it]
    found: list[Standing] = []
    with counting("looking", len(below_it), _WORTH_A_BAR) as told:
        for number, (folder, each) in enumerate(zip(folders, below_it, strict=True)):
            found.append(_look(folder, each))
            told(number + 1)
    same = duplicates.groups(
        (folder, standing.definition.run_id)
        for folder, standing in zip(folders, found, strict=True)
        if standing.definition
    )
    if as_json:
        print_json(
            [
                facts.as_json(standing) | {"folder": folder, "same_run_id": _others(folder, standing, same)}
                for folder, standing in zip(folders, found, strict=True)
            ]
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
    for run_id, its in same.items():
        click.echo(f"{click.style('note', fg='cyan')}  {one_line(duplicates.said(run_id, its))}", err=True)


def _look(folder: str, found: Store | str) -> Standing:
    try:
        return stand(open_store(found) if isinstance(found, str) else found)
    except SatchelError as error:
        return Standing(_url(folder), problem=error)
    except Exception as error:  # whatever is wrong with this one, the others are to be listed
        what = f"can't be read ({type(error).__name__}: {error})"
        return Standing(_url(folder), problem=SatchelError(what, path=folder))


def _others(folder: str, standing: Standing, same: dict[str, list[str]]) -> list[str]:
    """The folders that have its run_id, too."""
    known = same.get(standing.definition.run_id, []) if standing.definition else []
    return [other for other in known if other != folder]


def _url(folder: str) -> str:
    return folder if urls.is_remote(folder) else os.path.realpath(folder)


def _row(folder: str, standing: Standing) -> tuple[str, ...]:
    progress = standing.plan.progress if standing.plan and standing.plan.tasks else None
    return (
        one_line(folder),
        one_line(_run_id(standing), 30),
        standing.state,
        f"{progress.settled}/{progress.leaves}" if progress else "-",
        str(standing.waiting or "-"),
        standing.at[:19].replace("T", " ") or "-",
        _wanted(standing),
    )


def _run_id(standing: Standing) -> str:
    known = standing.definition or standing.moved
    return known.run_id if known else "?"


def _wanted(standing: Standing) -> str:
    if standing.moved:
        return f"see {one_line(standing.moved.to)}"
    if standing.moment and (questions := [*standing.moment.doubts, *standing.moment.approvals]):
        return "an answer: " + ", ".join(questions)
    if standing.wants_merge:
        return "merge"
    if standing.mistake:
        return "mend workspace.yaml"
    if standing.state == "paused" and standing.moment and standing.moment.seq == 0:
        return "run"  # there is nothing to resume yet
    if standing.has_tasks:
        return "resume"
    return _WANTED.get(standing.state, "resume" if standing.state == "waiting" else "")
