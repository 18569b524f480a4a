"""`satchel redo`: do an item again from its beginning."""

from __future__ import annotations

import sys
from typing import Any

import click
from msgspec.structs import asdict

from ..options.place import complete_folders, find, json_option
from ..options.position import complete_item
from ..options.storage import storage_option
from ..render.effects import as_rows, confirm_again, told
from ..render.output import columns, fold, print_json, remarks
from ..render.words import visible

_EXAMPLES = """\b
Examples:
  satchel redo my-digest ^3             do item 3 again
  satchel redo my-digest ^3 --effects   with its effects
"""


@click.command("redo", epilog=_EXAMPLES)
@click.argument("workspace", metavar="WS", shell_complete=complete_folders)
@click.argument("item", metavar="ITEM", shell_complete=complete_item)
@click.option("--effects", is_flag=True, help="Do its effects again, under a new idempotency key. Asks first.")
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@click.option("--by", metavar="NAME", help="Who asks for it. [default: user@host]")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@storage_option
def command(workspace: str, item: str, effects: bool, dry_run: bool, by: str | None, yes: bool, as_json: bool) -> None:
    """Do an item again from its beginning, finished or open, with the state as it is now.

    ITEM is its id, such as ^3. An equal call of an effect returns its recorded result. With --effects it is done again.
    """
    place = find(workspace)
    if effects and not dry_run and not yes:
        confirm_again(place.redo(item, effects=True, dry_run=True).effects, can_ask=not as_json)
    found = place.redo(item, effects=effects, dry_run=dry_run, by=by)
    if as_json:
        result: dict[str, Any] = {
            **asdict(found),
            "effects": as_rows(found.effects),
            "is_done": not dry_run,
            "exit_code": 0,
            "report": [asdict(remark) for remark in found.report],
        }
        print_json(result)
        return
    width = columns(sys.stdout)
    for line in remarks(found.report[1:], width):
        click.echo(line)
    verb = "would" if dry_run else "will"
    click.echo(visible(f"item {found.item} ({found.title!r}) {verb} be done again"))
    for say in found.says:
        click.echo("\n".join(fold(visible(say), width, 2)))
    for line in told(found.effects, forgotten=found.forgotten):
        click.echo("\n".join(fold(line, width, 4)))
    if not dry_run:
        click.echo(f"next: {place.command('resume')}", err=True)
