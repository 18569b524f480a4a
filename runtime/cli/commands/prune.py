"""`satchel prune`: remove what `keep:` in workspace.yaml no longer keeps."""

from __future__ import annotations

import click

from .. import adopting, takeover
from ..options.place import find, json_option, workspace_argument
from ..render.output import print_json
from ..render.words import counted, visible
from ..starting import adopt_option

_EXAMPLES = """\b
Examples:
  satchel prune my-digest --dry-run    show what may go
  satchel prune my-digest              remove it now
"""


@click.command("prune", epilog=_EXAMPLES)
@workspace_argument
@click.option("--dry-run", is_flag=True, help="Only show what would go. Also works while the run is active.")
@takeover.option
@adopt_option
@json_option
def command(workspace: str | None, as_json: bool, dry_run: bool, take_over: bool, adopt: bool) -> None:
    """Remove what the rules of `keep:` in workspace.yaml no longer keep.

    An active run does this by itself. Effects, questions, answers, edits and the conversation always stay, and so does
    what the run needs to resume.
    """
    place = find(workspace)
    if adopt:
        adopting.confirm(place)
    if take_over and not dry_run:
        takeover.confirm(place)
    done = place.prune(dry_run=dry_run, take_over=take_over, adopt=adopt)
    if as_json:
        print_json(
            {
                "url": done.url,
                "run_id": done.run_id,
                "dry_run": done.dry_run,
                "kept_from": done.kept_from,
                "files": done.files,
                "bytes": done.bytes,
                "paths": list(done.paths),
            }
        )
        return
    verb = "would remove" if dry_run else "removed"
    for folder, number in done.files.items():
        click.echo(visible(f"{verb} {counted(number, 'file')} in {folder}"))
    if not done.files:
        click.echo("there is nothing to remove")
    else:
        click.echo(f"{done.bytes:,} bytes in all")
    if done.kept_from > 1:
        click.echo(f"the journal is kept from record {done.kept_from:,} on")
