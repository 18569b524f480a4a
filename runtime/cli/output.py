"""What commands print: JSON for programs; for people tables, progress bars, lines that fit a terminal, and words that
only commands need."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

from ...workspace.base import UNSAFE, visible
from ..present import counted, cut, one_line, size

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...workspace.history import DataChange
    from ...workspace.inspect import Remark
    from ...workspace.transfer import Tell


def visible_json(text: str) -> str:
    """The same of JSON, which still says the same: these characters only come inside its strings, as do escapes."""
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text.replace("\r", " "))  # a line end between values


def utc(at: str) -> str:
    """A time of the journal, which is UTC, in columns that say so: `2026-11-21 23:10:04Z`."""
    return f"{at[:10]} {at[11:19]}Z" if at else ""


def listed(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


_GAP = 2  # columns between those of a table
_LEAST = 8  # columns that the first one keeps
_TITLE = 8  # columns of the marks

INDENT = "  "
SHORT = 60  # columns of a value in a line, away from a terminal
_NARROWEST = 12  # columns that it has at least

json_text = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` would make one for each of thousands of results


def print_json(value: Any, *, indent: int | None = 2) -> None:
    click.echo(visible_json(json.dumps(value, indent=indent, ensure_ascii=False, default=str)))


def columns(stream: IO[str]) -> int:
    """The width of the terminal behind `stream`; 0 if there is none, and nothing is cut or folded."""
    if not stream.isatty():
        return 0
    from shutil import get_terminal_size  # imports compression

    return get_terminal_size().columns


def fold(text: str, width: int, indent: int = 0) -> list[str]:
    """`text`, which is safe to print and has no colours yet, in lines of at most `width` columns, broken between
    words; indented lines, as of commands, stay whole."""
    lines = text.splitlines() or [""]
    if not width:
        return lines
    return [part for line in lines for part in (_broken(line, max(20, width - indent)) if line[:1].strip() else [line])]


def _broken(line: str, width: int) -> list[str]:
    """Paths and commands stay whole, so that they can be copied."""
    from textwrap import wrap

    return wrap(line, width, break_on_hyphens=False, break_long_words=False) or [""]


def remarks(found: Iterable[Remark], width: int) -> Iterator[str]:
    """The lines of an opening report."""
    from ..present import REMARKS, colour  # `--help` needs no tones

    for remark in found:
        first, *more = fold(visible(remark.text), width, _TITLE)
        yield click.style(f"{remark.kind:<{_TITLE}}", fg=colour(REMARKS.get(remark.kind))) + first
        yield from (" " * _TITLE + line for line in more)


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    for line in lines:
        click.echo(line, err=err)


def print_remarks(found: Iterable[Remark], *, err: bool = False) -> None:
    print_lines(remarks(found, columns(sys.stderr if err else sys.stdout)), err=err)


def print_folded(text: str, indent: int = 0) -> None:
    """A text that need not be safe, in lines that leave room for such an indent."""
    click.echo("\n".join(fold(visible(text), columns(sys.stdout), indent)))


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table. On a terminal its first column is cut so that the others fit, because half a status or half a number
    would mislead. Elsewhere nothing is cut."""
    cells = [[*titles], *([*map(visible, row)] for row in rows)]
    wide = [max(map(_cells, column)) + _GAP for column in zip(*cells, strict=True)]
    screen = columns(sys.stdout)
    if screen:
        left = screen + _GAP - sum(wide[1:])
        wide[0] = min(wide[0], max(_LEAST + _GAP, left))
        for row in cells:
            row[0] = cut(row[0], wide[0] - _GAP)
    lines = list[str]()
    for row in cells:
        padded = (cell + " " * (most - _cells(cell)) for cell, most in zip(row, wide, strict=True))
        line = "".join(padded).rstrip()
        lines.append(cut(line, screen) if screen else line)
    click.echo("\n".join([click.style(lines[0], bold=True), *lines[1:]]))


def _cells(text: str) -> int:
    """In columns of a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def line(text: str, width: int, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
    """`text` in one line, cut to the width of the terminal."""
    shown = visible(text)
    if not shown.isprintable():
        shown = " ".join(shown.splitlines())
    shown = cut(shown, width) if width else shown
    return click.style(shown, fg=fg, bold=bold or None, dim=dim or None) if fg or bold or dim else shown


def data_change(change: DataChange, width: int) -> str:
    from ..present import CHANGES, colour, json_line  # `--help` needs no tones

    sign, tone = CHANGES[change.kind]
    name = f"{INDENT}{sign} {change.path or '/'}  "
    if change.kind == "changed":
        said = pair(json_text(change.old), json_text(change.new), left_after(name, width))
    else:
        said = json_line(change.new if change.kind == "added" else change.old, left_after(name, width) or SHORT)
    return line(name + said, width, fg=colour(tone))


def pair(old: str, new: str, width: int) -> str:
    """Two texts in one line, both cut to the part where they begin to differ."""
    room = max(_NARROWEST, (width or 2 * SHORT) // 2 - 2)
    common = next((at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), 0)
    start = common - room // 3 if common > room // 2 and max(len(old), len(new)) > room else 0
    head = "…" if start else ""
    return " -> ".join(one_line(head + each[start:], room) for each in (old, new))


def left_after(name: str, width: int) -> int:
    """The columns after `name`; 0 away from a terminal."""
    return max(2 * _NARROWEST, width - len(name)) if width else 0


def data_json(change: DataChange) -> dict[str, Any]:
    sides = [name for name, without in (("old", "added"), ("new", "removed")) if change.kind != without]
    said = {"agent": change.agent, "path": change.path, "kind": change.kind}
    return said | {name: getattr(change, name) for name in sides}


@contextmanager
def counting(title: str, total: int, worth_it: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr. The body calls the yielded function with the amount done.

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


@contextmanager
def progressing(title: str, worth_it: int) -> Iterator[Callable[[int, int], None]]:
    """The same for a body that learns the total later: the amount done, and the total."""
    with ExitStack() as stack:
        bars: list[Callable[[int], None]] = []

        def progress(done: int, total: int) -> None:
            if not bars:
                bars.append(stack.enter_context(counting(title, total, worth_it)))
            bars[0](done)

        yield progress


@contextmanager
def transferring() -> Iterator[Tell]:
    """A progress bar of a transfer on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda phase, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    shown = (
        TextColumn("{task.description:<9}"),
        BarColumn(),
        TextColumn("{task.fields[so_far]}"),
        TimeRemainingColumn(),
    )
    with Progress(*shown, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("looking", total=None, so_far="")
        phases = [""]

        def tell(phase: str, done: int, total: int) -> None:
            if phase != phases[0]:
                phases[0] = phase
                progress.reset(task, description=phase, total=total)
            of = counted(total, "file") if phase == "clearing" else size(total)
            so_far = f"{done:,} of {of}" if phase == "clearing" else f"{size(done)} of {of}"
            progress.update(task, completed=done, total=total, so_far=so_far)

        yield tell
