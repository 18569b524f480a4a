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
    """Copy the workspace SRC to DST, which must be empty or not there: folders and URLs, in any combination.

    Every file is compared by its hash, and what is not whole is not a workspace. If it is cut off, the same command
    goes on with it. A run that is going is refused (exit code 6). Two of one run would both act, so the first opening
    of the copy asks for --adopt while the original is there.
    """
    carry("copy", source, to, as_json=as_json)
