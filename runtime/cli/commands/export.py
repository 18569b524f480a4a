"""`satchel export`: a run as a zip file."""

from __future__ import annotations

import shlex
import sys

import click
import msgspec

from ..carrying import bar
from ..options.place import complete_folders, find, json_option
from ..options.storage import storage_option
from ..render.output import columns, fold, print_json
from ..render.words import counted, visible

_EXAMPLES = """\b
Examples:
  satchel export my-digest digest.zip
  satchel export s3://bucket/runs/digest digest.zip
"""


@click.command("export", epilog=_EXAMPLES)
@click.argument("workspace", metavar="WS", shell_complete=complete_folders)
@click.argument("to", metavar="FILE.zip", type=click.Path())
@json_option
@storage_option
def command(workspace: str, to: str, as_json: bool) -> None:
    """Write the workspace WS into the zip file FILE.zip, for other people to read.

    The zip has the readable files, the journal and the checkpoints as of one record, also while the run is active, and
    no locks, logs and temporary files. `redact:` of workspace.yaml is applied to all of it. export.json in it says what
    was redacted and left out. An existing file is never overwritten.
    """
    with bar() as tell:
        done = find(workspace).export(to, progress=tell)
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
