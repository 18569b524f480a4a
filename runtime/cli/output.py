"""What commands print: JSON for programs, and tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from textwrap import wrap
from typing import IO, TYPE_CHECKING, Any

import click

from ...workspace.report import Remark
from .words import visible

if TYPE_CHECKING:
    from collections.abc import Callable

_TITLE = 7  # columns of `found`, `done` and `wanted`
_MARKS = {"found": "cyan", "done": "green", "wanted": "yellow"}


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def columns(stream: IO[str]) -> int:
    """How wide the terminal behind `stream` is; 0 if there is none, and nothing is to be cut or folded."""
    return get_terminal_size().columns if stream.isatty() else 0


def fold(text: str, width: int, indent: int = 0) -> list[str]:
    """`text`, which is safe to print and has no colours yet, in lines of at most `width` columns, broken between
    words; indented lines, as of commands, stay whole."""
    lines = text.splitlines() or [""]
    if not width:
        return lines
    return [part for line in lines for part in (wrap(line, max(20, width - indent)) if line[:1].strip() else [line])]


def remarks(found: Iterable[Remark], width: int) -> Iterator[str]:
    """The lines of an opening report."""
    for remark in found:
        first, *more = fold(visible(remark.text), width, _TITLE)
        yield click.style(f"{remark.kind:<{_TITLE}}", fg=_MARKS.get(remark.kind)) + first
        yield from (" " * _TITLE + line for line in more)


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
