"""`satchel log`: the journal, one record per line."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click
import msgspec

from ....workspace.base import visible
from ...control import RECORD_TYPES, Row
from ..options.place import find, workspace_argument
from ..render.output import columns
from ..render.telling import tell
from ..render.words import cut, visible_json

_NARROW = 110  # columns below which the day has a line of its own

_EXAMPLES = """\b
Examples:
  satchel log my-digest
  satchel log -n 20 my-digest
  satchel log --item 3 --type step.completed my-digest
  satchel log --json my-digest | jq -c 'select(.type == "doubt")'
"""


@click.command("log", epilog=_EXAMPLES)
@workspace_argument
@click.option("-n", "--last", "count", metavar="N", type=click.IntRange(min=1), help="Show only the last N records.")
@click.option("--item", metavar="ID", help="Show only this item (3, ^3) or named scope (_NAME).")
@click.option("--type", "kind", type=click.Choice(RECORD_TYPES), metavar="TYPE",
              help=f"Show only this type: {', '.join(RECORD_TYPES)}.")  # fmt: skip
@click.option("--audit", is_flag=True, help="Show only who opened, stopped, edited or answered what, and checkpoints.")
@click.option("--json", "as_json", is_flag=True, help="Print the lines of the journal with all their keys.")
def command(
    workspace: str | None, count: int | None, item: str | None, kind: str | None, audit: bool, as_json: bool
) -> None:  # fmt: skip
    """Print the journal, oldest record first: number, time (UTC), epoch, and what happened.

    Of a damaged journal, prints all records that it can read, and then what is wrong.
    """
    _print(find(workspace).log(last=count, item=item, type=kind, audit=audit), as_json, audit)


def _print(rows: Iterable[Row], as_json: bool, audit: bool) -> None:
    if as_json:
        for row in rows:
            data = row.data[:-1] + b',"who":%b}' % msgspec.json.encode(row.who) if audit else row.data
            click.echo(visible_json(data.decode(errors="replace")))
        return
    width = columns(sys.stdout)
    is_narrow, day = 0 < width < _NARROW, ""
    for row in rows:
        line = row.line
        if is_narrow and line.at[:10] != day:
            day = line.at[:10]
            click.echo(click.style(f"        {visible(day)}", dim=True))
        what, colour = tell(line.record)
        date = "" if is_narrow else f"{line.at[:10]} "
        who = f"{row.who}  " if audit else ""
        head = visible(f"{line.seq:>6}  {date}{line.at[11:19]}  {line.epoch:>3}  {who}")
        text = visible(what).replace("\n", " ")
        if width:
            text = cut(text, max(10, width - len(head)))
        click.echo(click.style(head, dim=True) + click.style(text, fg=colour))
