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
    """Move the workspace SRC to DST, which must be empty or not there: folders and URLs, in any combination.

    Every file is compared by its hash before anything is removed, and never are both places a workspace. If it is cut
    off, the same command goes on with it. What stays at SRC is moved.yaml, which says where the run went. A run that is
    going is refused (exit code 6).
    """
    carry("move", source, to, as_json=as_json)
