"""What `copy` and `move` share: their arguments, the progress bar, and the final text."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...workspace.base import urls
from ...workspace.inspect import Kind
from ...workspace.transfer import Journey
from .options import storage
from .options.place import complete_folders, find, json_option
from .render.output import columns, fold, print_json
from .render.words import counted, size, visible

if TYPE_CHECKING:
    from ...workspace.transfer import Tell

F = TypeVar("F", bound=Callable[..., Any])
_VERBS = {"copy": "copied", "move": "moved"}


def from_and_to(function: F) -> F:
    """The arguments SRC and DST, and the options that go with them. The command gets `source`, `to` and `as_json`."""
    function = json_option(storage.storage_option(function))
    for name, metavar in (("to", "DST"), ("source", "SRC")):  # the option that is added last is shown first
        function = click.argument(name, metavar=metavar, shell_complete=complete_folders)(function)
    return function


def carry(kind: Kind, source: str, to: str, *, as_json: bool) -> None:
    """Copy or move the workspace at `source`, and print the result."""
    is_remote = urls.is_remote(to)
    # The storage options apply to the ends that are URLs.
    here = find(source, with_options=urls.is_remote(source) or not is_remote)
    with bar() as tell:
        do = here.copy if kind == "copy" else here.move
        journey = do(to, progress=tell, storage_options=storage.given() if is_remote else None)
    if as_json:
        print_json(_json(journey))
        return
    width = columns(sys.stdout)
    for line in _lines(journey):
        click.echo("\n".join(fold(visible(line), width)))
    click.echo(visible(f"next: {shlex.join(['satchel', 'status', to])}"), err=True)


def _lines(journey: Journey) -> Iterator[str]:
    if journey.was_done:
        yield f"{journey.run_id} was {_VERBS[journey.kind]} to {journey.to} already; there is nothing to do"
        return
    yield f"{_VERBS[journey.kind]} {journey.run_id} from {journey.source} to {journey.to}"
    if journey.files:
        there = journey.files - journey.copied
        before = f", {counted(there, 'file')} of them in an earlier attempt" if there else ""
        yield f"  {counted(journey.files, 'file')}, {size(journey.bytes)}, each compared by its hash{before}"
    else:
        yield "  it had arrived already; the rest was removed here"
    for note in journey.notes:
        yield f"  {note}"
    for path in journey.left:
        yield f"  not moved, because it was changed or added during the move: {path}"
    if journey.kind == "copy":
        yield "  there are two copies of this run now; while the other one exists, the new one asks before it continues"


def _json(journey: Journey) -> dict[str, object]:
    return {
        "kind": journey.kind,
        "exit_code": 0,
        "run_id": journey.run_id,
        "source": journey.source,
        "to": journey.to,
        "was_done": journey.was_done,
        "resumed": journey.resumed,
        "files": journey.files,
        "bytes": journey.bytes,
        "copied": journey.copied,
        "sha256": journey.sha256,
        "is_clean": journey.is_clean,
        "notes": journey.notes,
        "left": journey.left,
    }


@contextmanager
def bar() -> Iterator[Tell]:
    """A progress bar on stderr, if that is a terminal."""
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
