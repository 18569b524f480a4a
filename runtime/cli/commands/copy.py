"""`satchel copy`: a second copy of a run at another place."""

from __future__ import annotations

import click

from ..carrying import carry, from_and_to

_EXAMPLES = """\b
Examples:
  satchel copy my-digest ~/backup/my-digest
  satchel copy s3://bucket/runs/digest ./to-look-at
"""


@click.command("copy", epilog=_EXAMPLES)
@from_and_to
def command(source: str, to: str, as_json: bool) -> None:
    """Copy the workspace SRC to DST: folders and URLs, in any combination. DST must be empty or must not exist.

    Compares every file by its hash. An unfinished copy is not a workspace. If the copy is interrupted, the same command
    continues it. A running workspace is refused (exit code 6). Two copies of one run would both act, so the first start
    of the copy asks for --adopt while the original exists.
    """
    carry("copy", source, to, as_json=as_json)
