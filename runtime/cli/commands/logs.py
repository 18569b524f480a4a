"""`satchel log`: what happened in a run, record by record, and what its processes have printed."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec

from ....workspace.base import UsageError, visible
from ...api import RECORD_TYPES, Handle, LogRow, ProcessLine
from ...present import colour, cut, describe_record, missing_log
from ..options import find, note_json, workspace_argument
from ..output import columns, utc, visible_json

_TOGETHER = 200  # lines
_NARROW = 110  # columns below which the day has a line of its own

_LOG_EXAMPLES = """\b
Examples:
  satchel log my-digest
  satchel log -n 20 my-digest
  satchel log --item 3 --type 'step.*' my-digest
  satchel log --agent left --step ask --since 2h my-digest
  satchel log -f my-digest
  satchel log --json my-digest | jq -c 'select(.type == "doubt")'
  satchel log --process -n 50 my-digest     what its process has printed
"""


def _types(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [each for each in RECORD_TYPES if each.startswith(incomplete)]


@click.command("log", epilog=_LOG_EXAMPLES)
@workspace_argument
@click.option(
    "-n", "--last", "count", metavar="N", type=click.IntRange(min=1), help="Show only the last N records or lines."
)
@click.option("--item", metavar="ID", help="Show only this item (3, ^3) or named scope (_NAME).")
@click.option(
    "--type",
    metavar="TYPE",
    shell_complete=_types,
    help=f"Show only this type, or those of a pattern ('step.*'): {', '.join(RECORD_TYPES)}.",
)
@click.option(
    "--agent", metavar="PATH", help="Show only this sub-agent (left/deep) and those below it; . is the run's own."
)
@click.option("--step", metavar="NAME", help="Show only the steps and effects of this name.")
@click.option(
    "--since", metavar="TIME", help="Show only records since a time (22:30, 2026-11-22 22:30), or of the last 2h."
)
@click.option("--audit", is_flag=True, help="Show only who opened, stopped, edited or answered what, and checkpoints.")
@click.option(
    "-f", "--follow", is_flag=True, help="Then show what happens, until the run has completed or is cancelled."
)
@click.option(
    "--process", "of_process", is_flag=True, help="Show instead what processes of the run have printed (run.log)."
)
@click.option(
    "--json", "as_json", is_flag=True, callback=note_json, help="Print the lines of the journal with all their keys."
)
def log_command(
    workspace: str | None, count: int | None, follow: bool, of_process: bool, as_json: bool, **chosen: Any
) -> None:
    """Print the journal, oldest record first: number, time (UTC), epoch, and what happened.

    Of a damaged journal, prints all records that it can read, and then what is wrong.

    --process prints what the processes of the run have printed, as far as `--detach`, `satchel serve` or the page has
    started them. Each start is marked with its time.
    """
    place = find(workspace)
    if of_process:
        _refuse_with_process(chosen)
        _print_process_log(place, count, follow, as_json)
        return
    rows = place.history.log(last=count, follow=follow, **chosen)
    _print_record((_log_as_json if as_json else _log_lines)(rows, chosen["audit"]), at_once=follow)


def _print_record(lines: Iterable[str], *, at_once: bool) -> None:
    """`at_once`: each line when it comes. Otherwise several, because that is faster."""
    waiting: list[str] = []
    try:
        for line in lines:
            waiting.append(line)
            if at_once or len(waiting) == _TOGETHER:
                text = "\n".join(waiting)
                waiting.clear()
                click.echo(text)
    finally:
        if waiting:
            click.echo("\n".join(waiting))


def _log_as_json(rows: Iterable[LogRow], audit: bool) -> Iterator[str]:
    for row in rows:
        data = row.data[:-1] + b',"who":%b}' % msgspec.json.encode(row.who) if audit else row.data
        yield visible_json(data.decode(errors="replace"))


def _log_lines(rows: Iterable[LogRow], audit: bool) -> Iterator[str]:
    width = columns(sys.stdout)
    is_narrow, day = 0 < width < _NARROW, ""
    for row in rows:
        line = row.line
        if is_narrow and line.at[:10] != day:
            day = line.at[:10]
            yield click.style(f"        {visible(day)}", dim=True)
        said = describe_record(line.record)
        at = utc(line.at)[11:] if is_narrow else utc(line.at)
        who = f"{row.who}  " if audit else ""
        head = visible(f"{line.seq:>6}  {at}  {line.epoch:>3}  {who}")
        text = visible(said.line).replace("\n", " ")
        if width:
            text = cut(text, max(10, width - len(head)))
        yield click.style(head, dim=True) + click.style(text, fg=colour(said.tone))


def _refuse_with_process(chosen: dict[str, Any]) -> None:
    if wrong := [name for name, value in chosen.items() if value]:
        raise UsageError(f"--{wrong[0]} and --process can't be used together", why="it chooses records of the journal")


def _print_process_log(place: Handle, count: int | None, follow: bool, as_json: bool) -> None:
    found = place.history.process_log(last=count, follow=follow)
    lines: Iterator[str] = (_process_line(each, as_json) for each in found)
    if not follow:
        first = next(lines, None)
        if first is None:
            click.echo(missing_log(place.status(brief=True), is_remote=place.store.abilities.remote), err=True)
            return
        lines = itertools.chain((first,), lines)
    _print_record(lines, at_once=follow)


def _process_line(each: ProcessLine, as_json: bool) -> str:
    if as_json:
        return visible_json(msgspec.json.encode({"text": each.text, "start": each.start or None}).decode())
    return click.style(f"start of a process, {utc(each.start)}", bold=True) if each.start else visible(each.text)
