"""`satchel ls` and `serve`: all workspaces below a folder, listed or kept running."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, BinaryIO

import click

from ....workspace.base import UsageError, visible
from ....workspace.inspect import discovery
from ...api import RunStatus, ls, wanted
from ...present import SERVE_EVENTS, colour, counted, fraction, one_line, run_id_of, state_colour
from ..group import listener
from ..options import complete_folders, drain_timeout_option, given, json_option, storage_option
from ..render import ending
from ..render.output import columns, print_json, print_table, progressing

if TYPE_CHECKING:
    from ...supervision.serve import ServeEvent

_WORTH_A_BAR = 30
_NARROW = 90  # columns below which run and time are left out
_ESSENTIAL = (0, 2, 3, 4, 6)

_LS_EXAMPLES = """\b
Examples:
  satchel ls                       under the current folder
  satchel ls ~/runs
  satchel ls s3://bucket/runs
  satchel ls --code ~/runs         which code each run has seen
  satchel ls --json ~/runs | jq '.[] | select(.state == "waiting")'
"""


@click.command("ls", epilog=_LS_EXAMPLES)
@click.argument("root", default=".", shell_complete=complete_folders)
@click.option("--code", "with_code", is_flag=True, help="Show the version of the code that each run has worked with.")
@json_option
@storage_option
def ls_command(root: str, with_code: bool, as_json: bool) -> None:
    """List the workspaces under ROOT, a folder or URL, at any depth: the state of each run, and what it needs.

    Skips hidden folders and does not follow links. Lists a damaged workspace as damaged.
    """
    with progressing("looking", _WORTH_A_BAR) as progress:
        found = ls(root, storage_options=given(), progress=progress)
    if as_json:
        print_json(
            [ending.status_as_json(each) | {"folder": each.folder, "same_run_id": each.same_run_id} for each in found]
        )
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


def _same(found: list[RunStatus]) -> dict[str, list[str]]:
    """The folders of each run_id that several have."""
    return discovery.duplicate_groups((each.folder, each.definition.run_id) for each in found if each.definition)


def _row(status: RunStatus) -> tuple[str, ...]:
    return (
        one_line(status.folder),
        one_line(run_id_of(status) or "?", 30),
        status.state,
        fraction(status.plan) or "-",
        str(status.waiting or "-"),
        status.at[:19].replace("T", " ") or "-",
        wanted(status),
    )


def _code(status: RunStatus) -> str:
    return (status.moment.code if status.moment else "") or "-"


_SERVE_EXAMPLES = """\b
Examples:
  satchel serve ~/runs
  satchel serve ~/runs --at-most 4 --drain-timeout 30s
  satchel serve s3://bucket/runs
  satchel serve ~/runs --once      start all that is due now; for cron
  satchel serve ~/runs --listen 8080

\b
Ctrl-C or SIGTERM stops all runs at a safe point, then ends with exit code 0;
a second Ctrl-C stops them by force. The log of a run is .satchel/run.log,
of a run under a URL a file in ~/.local/state/satchel/log.
"""


@click.command("serve", epilog=_SERVE_EXAMPLES)
@click.argument("root", shell_complete=complete_folders)
@click.option(
    "--at-most",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many runs run at a time. [default: one for each core, at least 2]",
)
@click.option("--once", is_flag=True, help="End when no run is running or due.")
@click.option("--listen", metavar="ADDRESS", help="Take tasks by HTTP, POST /inbox/RUN: PORT, HOST:PORT or unix:PATH.")
@click.option(
    "--token-file",
    type=click.File("rb"),
    help="A file with the token of --listen. [default: what SATCHEL_LISTEN_TOKEN has]",
)
@click.option("--no-token", is_flag=True, help="With --listen on this machine: every program here may send tasks.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="Another name that --listen is reached by.")
@drain_timeout_option
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON, one a line, for programs.")
@storage_option
def serve_command(
    root: str,
    at_most: int | None,
    once: bool,
    listen: str | None,
    token_file: BinaryIO | None,
    no_token: bool,
    names: tuple[str, ...],
    drain_timeout: float | None,
    as_json: bool,
) -> None:
    """Start the runs under ROOT that are new or were interrupted. Resume those whose question was answered, whose pause
    has ended, or whose sleep is over.

    Runs that are paused, wait for an answer, or failed need a person. Satchel notices new workspaces and changed files
    within about a second, under a URL within five. Each run has a supervisor, as with `satchel run`.
    """
    if listen is None and (no_token or token_file or names):
        raise UsageError("a token and a name are for --listen")
    if listen is not None and once:
        raise UsageError("--once ends, and --listen waits for requests", remedy="use one of them")
    from ...api import serve  # loads what starts runs
    from ...supervision.serve import ServeEvent

    def tell(event: ServeEvent) -> None:
        with suppress(OSError):  # the runs continue, although the disk of its own log is full
            _say(event, as_json)

    door: AbstractContextManager[str] = nullcontext("")
    if listen is not None:
        door = listener()(root, listen, token_file=token_file, no_token=no_token, names=names, storage_options=given())
    with door as url:
        if url:
            tell(ServeEvent("listening", root, url))
        serve(root, at_most=at_most, once=once, drain_timeout=drain_timeout, tell=tell, storage_options=given())


def _say(event: ServeEvent, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"event": event.kind, "folder": event.folder, "text": event.text}))
        return
    kind = click.style(f"{event.kind:<12}", fg=colour(SERVE_EVENTS.get(event.kind)) or state_colour(event.kind))
    click.echo(kind + one_line(f"{event.folder}: {event.text}" if event.text else event.folder), err=True)
