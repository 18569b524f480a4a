"""`satchel log`: the journal, one record a line."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import click

from ...workspace import journal, record
from ...workspace.errors import SatchelError, UsageError
from ...workspace.looking import define
from ...workspace.record import BadLine, Line
from ...workspace.store import Store
from .output import columns
from .place import find, workspace_argument
from .telling import tell
from .words import cut, visible, visible_json

_READ_LIMIT = 1 << 30
_NARROW = 110  # columns below which the day stands in a line of its own
_TYPES = [kind.__struct_config__.tag for kind in record.AnyRecord.__args__]

_EXAMPLES = """\b
Examples:
  satchel log my-digest
  satchel log -n 20 my-digest
  satchel log --item 3 --type step.completed my-digest
  satchel log --json my-digest | jq -c 'select(.type == "doubt")'
"""


@click.command("log", short_help="What happened, one record a line.", epilog=_EXAMPLES)
@workspace_argument
@click.option("-n", "--last", "count", metavar="N", type=click.IntRange(min=1), help="Only the last N records.")
@click.option("--item", metavar="ID", help="Only of this item (3, ^3) or named scope (_NAME).")
@click.option("--type", "kind", type=click.Choice(_TYPES), metavar="TYPE", help=f"Only this type: {', '.join(_TYPES)}.")
@click.option("--json", "as_json", is_flag=True, help="The lines of the journal as they are.")
def command(workspace: str | None, count: int | None, item: str | None, kind: str | None, as_json: bool) -> None:
    """Print the journal, oldest first: number, time (UTC), epoch, and what happened.

    Of a damaged journal all that can be read is printed, and then what is wrong with it.
    """
    store = find(workspace).store
    problem: SatchelError | None = None
    try:
        define(store)
    except UsageError:
        raise
    except SatchelError as error:
        problem = error  # the journal can be read without it
    rows = _Rows(store)
    chosen: Iterable[Row] = (row for row in rows.read() if _is_wanted(row.line, item, kind))
    if count is not None:
        chosen = deque(chosen, maxlen=count)
    _print(chosen, as_json)
    if rows.is_broken:
        found = journal.read(store, after=0)  # says whether a crash explains it, and raises if not
        if found.torn:
            click.echo(visible(f"note: {found.torn}, as a crash leaves it; the next opening cuts it off"), err=True)
    if problem:
        raise problem


class Row(NamedTuple):
    data: bytes  # as it is in the file
    line: Line


class _Rows:
    """All records that can be read. `is_broken` afterwards: something between or behind them could not."""

    def __init__(self, store: Store):
        self.is_broken = False
        self._store = store

    def read(self) -> Iterator[Row]:
        expected, crc = 1, record.NO_CRC
        for path in map(journal.segment_path, journal.segments(self._store)):
            try:
                data = self._store.read(path, limit=_READ_LIMIT).data
            except SatchelError:
                self.is_broken = True
                continue
            for row in data.split(b"\n"):
                if not row:
                    continue
                try:
                    line = record.parse(row)
                except (BadLine, SatchelError):
                    self.is_broken = True
                    continue
                self.is_broken |= line.seq != expected or line.prev != crc
                expected, crc = line.seq + 1, line.crc
                yield Row(row, line)
            self.is_broken |= not data.endswith(b"\n")


def _is_wanted(line: Line, item: str | None, kind: str | None) -> bool:
    if kind is not None and line.record.__struct_config__.tag != kind:
        return False
    return item is None or getattr(line.record, "scope", None) == item.removeprefix("^")


def _print(rows: Iterable[Row], as_json: bool) -> None:
    if as_json:
        for row in rows:
            click.echo(visible_json(row.data.decode(errors="replace")))
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
        head = visible(f"{line.seq:>6}  {date}{line.at[11:19]}  {line.epoch:>3}  ")
        text = visible(what).replace("\n", " ")
        if width:
            text = cut(text, max(10, width - len(head)))
        click.echo(click.style(head, dim=True) + click.style(text, fg=colour))
