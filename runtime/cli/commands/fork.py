"""`satchel fork`: start a new run from an earlier moment of a run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from typing import Any

import click
from msgspec.structs import asdict

from ....workspace.base import urls
from ....workspace.transfer import Forked
from ...control import effects_since
from ..carrying import bar
from ..options import storage
from ..options.place import complete_folders, find, json_option
from ..options.position import complete_moment
from ..render.effects import REUSE, as_rows, confirm_again, told
from ..render.output import columns, fold, print_json
from ..render.words import counted, visible

_EXAMPLES = """\b
Examples:
  satchel fork my-digest ../second --at ^3   a new run from before item 3
  satchel fork my-digest s3://bucket/second  a new run from now on
"""


@click.command("fork", epilog=_EXAMPLES)
@click.argument("workspace", metavar="WS", shell_complete=complete_folders)
@click.argument("to", metavar="DST", shell_complete=complete_folders)
@click.option(
    "--at",
    metavar="SEQ|ITEM|CHECKPOINT",
    shell_complete=complete_moment,
    help="A record's number, an item such as ^3 (its beginning), or a file in checkpoints/. [default: now]",
)
@click.option("--run-id", default="", metavar="ID", help="Name of the new run. [default: made from the old one]")
@click.option("--effects", is_flag=True, help="Do effects since then again in the new run. Asks first.")
@click.option("--reuse", is_flag=True, help=REUSE)
@click.option("--by", metavar="NAME", help="Who asks for it. [default: user@host]")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@storage.storage_option
def command(
    workspace: str,
    to: str,
    at: str | None,
    run_id: str,
    effects: bool,
    reuse: bool,
    by: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Start a new run in DST from an earlier moment of the run in WS: folders and URLs, in any combination.

    WS is only read, also while it runs. The new run has its own name. Effects that WS has done since that moment are
    known to the new run: an equal call returns their recorded result, and an unequal one is asked about. With --effects
    they are done again there.
    """
    is_remote = urls.is_remote(to)
    place = find(workspace, with_options=urls.is_remote(workspace) or not is_remote)
    if effects and not yes:
        confirm_again(effects_since(place, at), can_ask=not as_json)
    with bar() as tell:
        found = place.fork(
            to,
            at=at,
            run_id=run_id,
            effects=effects,
            reuse=reuse,
            by=by,
            progress=tell,
            storage_options=storage.given() if is_remote else None,
        )
    if as_json:
        result: dict[str, Any] = {**asdict(found), "effects": as_rows(found.effects), "exit_code": 0}
        print_json(result)
        return
    for line in _lines(found):
        click.echo("\n".join(fold(line, columns(sys.stdout), 4)))
    click.echo(visible(f"next: {shlex.join(['satchel', 'resume', to])}"), err=True)


def _lines(found: Forked) -> Iterator[str]:
    if found.was_done:
        yield visible(f"{found.run_id} was forked from record {found.seq:,} of {found.source} already; it is complete")
        return
    yield visible(f"forked {found.run_id} from record {found.seq:,} of {found.source}")
    yield f"  {counted(found.files, 'file')} copied"
    yield from told(found.effects, forgotten=found.forgotten)
    for path in found.left_out:
        yield visible(f"  not copied, because it has changed since: {path}")
