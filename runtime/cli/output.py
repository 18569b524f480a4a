"""What commands print: JSON for programs, and tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ...workspace.report import Remark
from .words import visible

if TYPE_CHECKING:
    from collections.abc import Callable

_MARKS = {"found": "cyan", "done": "green", "wanted": "yellow"}


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def remarks(found: Iterable[Remark]) -> Iterator[str]:
    """The lines of an opening report."""
    for remark in found:
        first, *more = visible(remark.text).splitlines() or [""]
        yield click.style(f"{remark.kind:<7}", fg=_MARKS.get(remark.kind)) + first
        yield from (f"       {line}" for line in more)


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, flexible: int) -> None:
    """A table as wide as the terminal; elsewhere as wide as it needs to be. The column `flexible` is cut first."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(soft_wrap=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, title in enumerate(titles):
        # Only one column may give way: half a status or half a number misleads.
        table.add_column(title, no_wrap=True, overflow="ellipsis", min_width=8 if number == flexible else None)
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    if not console.is_terminal:
        console.width = 10_000
    console.print(table, crop=console.is_terminal)


@contextmanager
def counting(title: str, total: int, worth_it: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr while the body calls what it is given with how far it has come.

    Only on a terminal, and only from a total of `worth_it`.
    """
    if total < worth_it or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.update(task, completed=done)
