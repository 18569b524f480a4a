"""`satchel copy`, `move`, `export`, `replicate`, `restore`: a run at another place, in a zip file or a backup."""

from __future__ import annotations

import json
import os
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click
import msgspec
from msgspec.structs import asdict

from ....workspace.base import DEFINITION, UsageError, urls, visible
from ....workspace.inspect import Kind
from ....workspace.transfer import TransferResult
from ...api import BackupEvent, Replication
from ...present import counted, one_line, size
from ...status import use_options
from .. import summary
from ..options import complete_folders, find, find_both, given, json_option, storage_option, together
from ..output import print_folded, print_json, transferring

_VERBS = {"copy": "copied", "move": "moved"}


from_and_to = together(
    click.argument("source", metavar="SRC", shell_complete=complete_folders),
    click.argument("to", metavar="DST", shell_complete=complete_folders),
    json_option,
    storage_option,
)


def carry(kind: Kind, source: str, to: str, *, as_json: bool) -> None:
    """Copy or move the workspace at `source`, and print the result."""
    here, storage_options = find_both(source, to)
    with transferring() as tell:
        do = here.copy if kind == "copy" else here.move
        result = do(to, progress=tell, storage_options=storage_options)
    if as_json:
        print_json(transfer_as_json(result))
        return
    for line in _transfer_lines(result):
        print_folded(line)
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


def transfer_as_json(result: TransferResult) -> dict[str, object]:
    return {"exit_code": 0, **{name: each for name, each in asdict(result).items() if name != "seq"}}


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
        print_folded(line)
    click.echo(
        visible(f"to read it: unzip {shlex.quote(to)}, then `satchel status {shlex.quote(done.run_id)}`"), err=True
    )


_CODES = {"ended": 0, "following": 0, "adopted": 0, "refused": 2, "overtaken": 6, "away": 8}

_REPLICATE_EXAMPLES = """\b
Examples:
  satchel replicate my-digest s3://bucket/backups/my-digest
  satchel replicate ~/runs s3://bucket/backups    all runs
  satchel replicate ~/runs --once                 for cron
"""


@click.command("replicate", epilog=_REPLICATE_EXAMPLES)
@click.argument("root", metavar="WS|ROOT", shell_complete=complete_folders)
@click.argument("to", metavar="[DST]", required=False, shell_complete=complete_folders)
@click.option("--once", is_flag=True, help="Bring each backup up to date, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON, one a line, for programs.")
@storage_option
@click.pass_context
def replicate_command(ctx: click.Context, root: str, to: str | None, once: bool, as_json: bool) -> None:
    """Let a backup follow the workspace WS, or each one under the folder ROOT, until Ctrl-C or SIGTERM.

    The journal of an active run follows within a second, its other files within some. A backup is no workspace that
    anything starts; `satchel restore` goes on from it. DST is a folder or URL; {run_id} and {name} in it are replaced.
    Without DST, workspace.yaml says where (`backup:`). If a run was restored from its backup, its process here is
    stopped. Exit codes with --once: 8 if a place can't be reached, 6 if a run was restored elsewhere, 2 if a place
    can't be used.
    """
    folder = urls.local(root)
    if urls.is_remote(root) or not os.path.isdir(folder):
        raise UsageError(
            "no such folder",
            path=root,
            why="a backup follows runs on a disk",
            remedy="name a workspace, or a folder that holds some",
        )
    if to is not None and urls.is_remote(to):
        urls.check_protocol(urls.checked(to))
        use_options(to, given())
    work = Replication(os.path.realpath(folder), to, lambda event: _say(event, as_json), once)
    with _until_signal(work.over):
        notes = work.run()
    if not notes:
        raise UsageError(
            "no workspace that could be followed",
            path=root,
            why=f"no folder under it has a {DEFINITION} and a place for its backup",
            remedy="`satchel ls` shows the workspaces; name a DST, or write `backup:` into workspace.yaml",
        )
    ctx.exit(max(_CODES[note.state] for note in notes) if once else 0)


@contextmanager
def _until_signal(over: threading.Event) -> Iterator[None]:
    before = {number: signal.signal(number, lambda *_: over.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(event: BackupEvent, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(event)))
        return
    tone = {"away": "yellow", "refused": "red", "overtaken": "red"}.get(event.kind, "green")
    click.echo(click.style(f"{event.kind:<10}", fg=tone) + one_line(f"{event.folder}: {event.text}"), err=True)


_RESTORE_EXAMPLES = """\b
Examples:
  satchel ls s3://bucket/backups
  satchel restore s3://bucket/backups/my-digest ./my-digest
  satchel resume ./my-digest
"""


@click.command("restore", epilog=_RESTORE_EXAMPLES)
@from_and_to
@click.option("--nothing-after", is_flag=True, help="The lost owner has certainly done nothing after the last record.")
@click.option("--again", is_flag=True, help="Although it was restored before, to a place that is lost as well.")
def restore_command(source: str, to: str, as_json: bool, nothing_after: bool, again: bool) -> None:
    """Bring the run of the backup SRC to DST, because its machine is lost. DST must be empty or must not exist.

    From here on the lost owner is fenced off: if it comes back, it stops and says so. The run at DST repeats what was
    done after the last record of the backup. It asks before each effect that has no record, since the lost owner may
    have done it; the answer `nothing-was-done`, or --nothing-after here, ends that. If the command is interrupted, the
    same command continues.
    """
    here, storage_options = find_both(source, to)
    with transferring() as tell:
        result = here.backup.restore(
            to, again=again, nothing_after=nothing_after, progress=tell, storage_options=storage_options
        )
    if as_json:
        print_json(transfer_as_json(result) | {"seq": result.seq})
        return
    if result.was_done:
        lines = [f"{result.run_id} was restored to {result.to} already; there is nothing to do"]
    else:
        lines = [
            f"restored {result.run_id} from {result.source} to {result.to}, up to record {result.seq:,}",
            f"  {counted(result.files, 'file')}, {size(result.bytes)}, each compared by its hash",
        ]
    for line in lines:
        print_folded(line)
    there = find(to, with_options=urls.is_remote(to))
    state = there.status(brief=True).state
    if not (result.was_done or nothing_after or state == "held"):
        print_folded("  it will ask before each effect that the lost owner may have done after that record")
    summary.print_next(there, state)
