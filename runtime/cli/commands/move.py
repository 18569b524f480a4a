"""`satchel move`: move a run to another place."""

from __future__ import annotations

import click

from ..carrying import carry, from_and_to

_EXAMPLES = """\b
Examples:
  satchel pause --wait my-digest
  satchel move my-digest s3://bucket/runs/digest
  satchel move s3://bucket/runs/digest ./my-digest
"""


@click.command("move", epilog=_EXAMPLES)
@from_and_to
def command(source: str, to: str, as_json: bool) -> None:
    """Move the workspace SRC to DST: folders and URLs, in any combination. DST must be empty or must not exist.

    Compares every file by its hash before it removes anything. The two places are never both a workspace. If the move
    is interrupted, the same command continues it. A file moved.yaml stays at SRC and says where the run is. A running
    workspace is refused (exit code 6).
    """
    carry("move", source, to, as_json=as_json)
