"""`satchel log`: the journal, one record per line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import click
import msgspec

from ....workspace.base import visible
from ...control import RECORD_TYPES, Row, tell
from ..options.place import find, note_json, workspace_argument
from ..render.output import columns
from ..render.words import cut, utc, visible_json

_TOGETHER = 200  # lines
_NARROW = 110  # columns below which the day has a line of its own

_EXAMPLES = """\b
Examples:
  satchel log my-digest
  satchel log -n 20 my-digest
  satchel log --item 3 --type 'step.*' my-digest
  satchel log --agent left --step ask --since 2h my-digest
  satchel log -f my-digest
  satchel log --json my-digest | jq -c 'select(.type == "doubt")'
"""


def _types(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [each for each in RECORD_TYPES if each.startswith(incomplete)]


@click.command("log", epilog=_EXAMPLES)
@workspace_argument
@click.option("-n", "--last", "count", metavar="N", type=click.IntRange(min=1), help="Show only the last N records.")
@click.option("--item", metavar="ID", help="Show only this item (3, ^3) or named scope (_NAME).")
@click.option(
    "--type",
    "kind",
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
    "--json", "as_json", is_flag=True, callback=note_json, help="Print the lines of the journal with all their keys."
)
def command(
    workspace: str | None,
    count: int | None,
    item: str | None,
    kind: str | None,
    agent: str | None,
    step: str | None,
    since: str | None,
    audit: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Print the journal, oldest record first: number, time (UTC), epoch, and what happened.

    Of a damaged journal, prints all records that it can read, and then what is wrong.
    """
    rows = find(workspace).log(
        last=count, item=item, type=kind, agent=agent, step=step, since=since, audit=audit, follow=follow
    )
    _print((_json if as_json else _lines)(rows, audit), at_once=follow)


def _print(lines: Iterable[str], *, at_once: bool) -> None:
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


def _json(rows: Iterable[Row], audit: bool) -> Iterator[str]:
    for row in rows:
        data = row.data[:-1] + b',"who":%b}' % msgspec.json.encode(row.who) if audit else row.data
        yield visible_json(data.decode(errors="replace"))


def _lines(rows: Iterable[Row], audit: bool) -> Iterator[str]:
    width = columns(sys.stdout)
    is_narrow, day = 0 < width < _NARROW, ""
    for row in rows:
        line = row.line
        if is_narrow and line.at[:10] != day:
            day = line.at[:10]
            yield click.style(f"        {visible(day)}", dim=True)
        what, colour = tell(line.record)
        at = utc(line.at)[11:] if is_narrow else utc(line.at)
        who = f"{row.who}  " if audit else ""
        head = visible(f"{line.seq:>6}  {at}  {line.epoch:>3}  {who}")
        text = visible(what).replace("\n", " ")
        if width:
            text = cut(text, max(10, width - len(head)))
        yield click.style(head, dim=True) + click.style(text, fg=colour)
