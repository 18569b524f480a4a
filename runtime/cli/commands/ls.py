"""`satchel ls`: the workspaces below a folder."""

from __future__ import annotations

import sys

import click

from ....workspace.inspect import discovery
from ...control import Standing, ls, wanted
from .. import facts
from ..options.place import complete_folders, json_option
from ..options.storage import given, storage_option
from ..render.output import columns, print_json, print_table, progressing
from ..render.words import counted, one_line, visible

_WORTH_A_BAR = 30
_NARROW = 90  # columns below which run and time are left out
_ESSENTIAL = (0, 2, 3, 4, 6)

_EXAMPLES = """\b
Examples:
  satchel ls                       under the current folder
  satchel ls ~/runs
  satchel ls s3://bucket/runs
  satchel ls --code ~/runs         which code each run has seen
  satchel ls --json ~/runs | jq '.[] | select(.state == "waiting")'
"""


@click.command("ls", epilog=_EXAMPLES)
@click.argument("root", default=".", shell_complete=complete_folders)
@click.option("--code", "with_code", is_flag=True, help="Show the version of the code that each run has worked with.")
@json_option
@storage_option
def command(root: str, with_code: bool, as_json: bool) -> None:
    """List the workspaces under ROOT, a folder or URL, at any depth: the state of each run, and what it needs.

    Skips hidden folders and does not follow links. Lists a damaged workspace as damaged.
    """
    with progressing("looking", _WORTH_A_BAR) as progress:
        found = ls(root, storage_options=given(), progress=progress)
    if as_json:
        print_json([facts.as_json(each) | {"folder": each.folder, "same_run_id": each.same_run_id} for each in found])
        return
    if not found:
        click.echo(f"no workspaces under {visible(root)}; `satchel new --list` lists the templates", err=True)
        return
    if sys.stdout.isatty():
        click.echo(f"{counted(len(found), 'workspace')} under {visible(root)}", err=True)
    titles = ("folder", "run", "state", "items", "inbox", "last activity (UTC)", "wanted")
    shown = _ESSENTIAL if 0 < columns(sys.stdout) < _NARROW else range(len(titles))
    heads, rows = [titles[at] for at in shown], [[row[at] for at in shown] for row in map(_row, found)]
    if with_code:
        heads, rows = [*heads, "code"], [[*row, _code(each)] for row, each in zip(rows, found, strict=True)]
    print_table(heads, rows, flexible=0)
    for run_id, its in _same(found).items():
        click.echo(
            f"{click.style('note', fg='cyan')}  {one_line(discovery.describe_duplicates(run_id, its))}", err=True
        )


def _same(found: list[Standing]) -> dict[str, list[str]]:
    """The folders of each run_id that several have."""
    return discovery.duplicate_groups((each.folder, each.definition.run_id) for each in found if each.definition)


def _row(standing: Standing) -> tuple[str, ...]:
    progress = standing.plan.progress if standing.plan and standing.plan.tasks else None
    return (
        one_line(standing.folder),
        one_line(_run_id(standing), 30),
        standing.state,
        f"{progress.settled}/{progress.leaves}" if progress else "-",
        str(standing.waiting or "-"),
        standing.at[:19].replace("T", " ") or "-",
        wanted(standing),
    )


def _code(standing: Standing) -> str:
    return (standing.moment.code if standing.moment else "") or "-"


def _run_id(standing: Standing) -> str:
    known = standing.definition or standing.moved
    return known.run_id if known else "?"
