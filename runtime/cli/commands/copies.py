"""`satchel copy`, `move` and `export`: a run at another place, or in a zip file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click
import msgspec

from ....workspace.base import urls, visible
from ....workspace.inspect import Kind
from ....workspace.transfer import TransferResult
from ...present import counted, size
from .. import options
from ..options import complete_folders, find, json_option, storage_option
from ..render.output import columns, fold, print_json, transferring

F = TypeVar("F", bound=Callable[..., Any])
_VERBS = {"copy": "copied", "move": "moved"}


def from_and_to(function: F) -> F:
    """The arguments SRC and DST, and the options that go with them. The command gets `source`, `to` and `as_json`."""
    function = json_option(options.storage_option(function))
    for name, metavar in (("to", "DST"), ("source", "SRC")):  # the option that is added last is shown first
        function = click.argument(name, metavar=metavar, shell_complete=complete_folders)(function)
    return function


def carry(kind: Kind, source: str, to: str, *, as_json: bool) -> None:
    """Copy or move the workspace at `source`, and print the result."""
    is_remote = urls.is_remote(to)
    # The storage options apply to the ends that are URLs.
    here = find(source, with_options=urls.is_remote(source) or not is_remote)
    with transferring() as tell:
        do = here.copy if kind == "copy" else here.move
        result = do(to, progress=tell, storage_options=options.given() if is_remote else None)
    if as_json:
        print_json(_transfer_as_json(result))
        return
    width = columns(sys.stdout)
    for line in _transfer_lines(result):
        click.echo("\n".join(fold(visible(line), width)))
    click.echo(visible(f"next: {shlex.join(['satchel', 'status', to])}"), err=True)


def _transfer_lines(result: TransferResult) -> Iterator[str]:
    if result.was_done:
        yield f"{result.run_id} was {_VERBS[result.kind]} to {result.to} already; there is nothing to do"
        return
    yield f"{_VERBS[result.kind]} {result.run_id} from {result.source} to {result.to}"
    if result.files:
        there = result.files - result.copied
        before = f", {counted(there, 'file')} of them in an earlier attempt" if there else ""
        yield f"  {counted(result.files, 'file')}, {size(result.bytes)}, each compared by its hash{before}"
    else:
        yield "  it had arrived already; the rest was removed here"
    for note in result.notes:
        yield f"  {note}"
    for path in result.left:
        yield f"  not moved, because it was changed or added during the move: {path}"
    if result.kind == "copy":
        yield "  there are two copies of this run now; while the other one exists, the new one asks before it continues"


def _transfer_as_json(result: TransferResult) -> dict[str, object]:
    return {
        "kind": result.kind,
        "exit_code": 0,
        "run_id": result.run_id,
        "source": result.source,
        "to": result.to,
        "was_done": result.was_done,
        "resumed": result.resumed,
        "files": result.files,
        "bytes": result.bytes,
        "copied": result.copied,
        "sha256": result.sha256,
        "is_clean": result.is_clean,
        "notes": result.notes,
        "left": result.left,
    }


_COPY_EXAMPLES = """\b
Examples:
  satchel copy my-digest ~/backup/my-digest
  satchel copy s3://bucket/runs/digest ./to-look-at
"""


@click.command("copy", epilog=_COPY_EXAMPLES)
@from_and_to
def copy_command(source: str, to: str, as_json: bool) -> None:
    """Copy the workspace SRC to DST: folders and URLs, in any combination. DST must be empty or must not exist.

    Compares every file by its hash. An unfinished copy is not a workspace. If the copy is interrupted, the same command
    continues it. A running workspace is refused (exit code 6). Two copies of one run would both act, so the first start
    of the copy asks for --adopt while the original exists.
    """
    carry("copy", source, to, as_json=as_json)


_MOVE_EXAMPLES = """\b
Examples:
  satchel pause --wait my-digest
  satchel move my-digest s3://bucket/runs/digest
  satchel move s3://bucket/runs/digest ./my-digest
"""


@click.command("move", epilog=_MOVE_EXAMPLES)
@from_and_to
def move_command(source: str, to: str, as_json: bool) -> None:
    """Move the workspace SRC to DST: folders and URLs, in any combination. DST must be empty or must not exist.

    Compares every file by its hash before it removes anything. The two places are never both a workspace. If the move
    is interrupted, the same command continues it. A file moved.yaml stays at SRC and says where the run is. A running
    workspace is refused (exit code 6).
    """
    carry("move", source, to, as_json=as_json)


_EXPORT_EXAMPLES = """\b
Examples:
  satchel export my-digest digest.zip
  satchel export s3://bucket/runs/digest digest.zip
"""


@click.command("export", epilog=_EXPORT_EXAMPLES)
@click.argument("workspace", metavar="WS", shell_complete=complete_folders)
@click.argument("to", metavar="FILE.zip", type=click.Path())
@json_option
@storage_option
def export_command(workspace: str, to: str, as_json: bool) -> None:
    """Write the workspace WS into the zip file FILE.zip, for other people to read.

    The zip has the readable files, the journal and the checkpoints as of one record, also while the run is active, and
    no locks, logs and temporary files. `redact:` of workspace.yaml is applied to all of it. export.json in it says what
    was redacted and left out. An existing file is never overwritten.
    """
    with transferring() as tell:
        done = find(workspace).files.export(to, progress=tell)
    if as_json:
        print_json({"exit_code": 0, "file": to, **msgspec.to_builtins(done)})
        return
    lines = [f"exported {done.run_id} as of record {done.seq:,} to {to}", f"  {counted(done.files, 'file')}"]
    lines += [f"  redacted: {path}" for path in done.redacted]
    lines += [f"  left out: {said}" for said in done.left_out]
    lines += [f"  not redacted: the value of {name}, which is not set here" for name in done.not_set]
    for line in lines:
        click.echo("\n".join(fold(visible(line), columns(sys.stdout))))
    click.echo(
        visible(f"to read it: unzip {shlex.quote(to)}, then `satchel status {shlex.quote(done.run_id)}`"), err=True
    )
