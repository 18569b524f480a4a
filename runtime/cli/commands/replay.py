"""`satchel replay`: do an item again in a fork, with another prompt or model, and compare it with the first time."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import click
import msgspec

from ....workspace.base import urls
from ...control import Replayed, typed_changes
from ...supervision.child import EXIT_CODES
from ..options import storage
from ..options.place import complete_folders, find, json_option
from ..options.position import complete_change, complete_item
from ..render import asked, history, replayed
from ..render.output import columns, fold, print_json
from ..render.progress import watching

_EXAMPLES = """\b
Examples:
  satchel replay my-digest ^3 --set model=small --into ../small
  satchel replay my-digest ^3 --set prompt=@new.md --into ../second
  satchel replay my-digest ^3 --set prompt.sum="Sum up {{text}}" --into dst
"""


@click.command("replay", epilog=_EXAMPLES)
@click.argument("workspace", metavar="WS", shell_complete=complete_folders)
@click.argument("item", metavar="ITEM", shell_complete=complete_item)
@click.option("--into", "to", metavar="DST", required=True, shell_complete=complete_folders, help="The new run.")
@click.option(
    "--set",
    "chosen",
    metavar="KEY=VALUE",
    multiple=True,
    shell_complete=complete_change,
    help="Change a setting, or a prompt: prompt.NAME=@FILE or prompt.NAME=TEXT. You can repeat it.",
)
@click.option("--run-id", default="", metavar="ID", help="Name of the new run. [default: made from the old one]")
@click.option("--by", metavar="NAME", help="Who asks for it. [default: user@host]")
@click.option("--quiet", "-q", is_flag=True, help="Print only the comparison and errors.")
@json_option
@storage.storage_option
def command(
    workspace: str, item: str, to: str, chosen: tuple[str, ...], run_id: str, by: str | None, quiet: bool, as_json: bool
) -> None:
    """Do one item again in a fork, with other prompts or settings, and compare it with the first time.

    WS is only read. DST becomes a new run that begins right before ITEM, does only that item, and is paused then. It
    does no effect: an equal call returns its recorded result, and before any other it stops. `prompt=` alone means the
    only prompt that the item has used.
    """
    is_remote = urls.is_remote(to)
    place = find(workspace, with_options=urls.is_remote(workspace) or not is_remote)
    settings, prompts = typed_changes(place, chosen)
    with (
        contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext(),
        watching(quiet=quiet) as watch,
    ):
        found = place.replay(
            item,
            to,
            settings=settings,
            prompts=prompts,
            watch=watch,
            run_id=run_id,
            by=by,
            storage_options=storage.given() if is_remote else None,
        )
    code = _code(found)
    if as_json:
        print_json(_as_json(found) | {"exit_code": code})
    else:
        width, there = columns(sys.stdout), find(to, with_options=is_remote)
        for line in replayed.told(found, width, with_report=quiet):  # else it was shown when it came
            click.echo(line)
        for question in asked.as_words(found.questions, there):
            click.echo("\n".join(fold(question, width)))
        if not quiet:
            click.echo(f"next: {there.command('resume')}", err=True)
    sys.exit(code)


def _code(found: Replayed) -> int:
    match found.end:
        case "done":
            return 0
        case "missed":
            return EXIT_CODES["failed"]
        case "effect":
            return EXIT_CODES["paused"]
        case status:
            return EXIT_CODES[status]


def _as_json(found: Replayed) -> dict[str, Any]:
    plain = (
        "url",
        "to",
        "run_id",
        "item",
        "title",
        "seq",
        "settings",
        "prompts",
        "end",
        "status",
        "reason",
        "first",
        "second",
        "failure",
        "report",
        "is_same",
    )
    said = {name: msgspec.to_builtins(getattr(found, name)) for name in plain}
    calls = [
        {"agent": pair.agent, "is_same": pair.is_same, "kept": pair.kept}
        | {name: history.call_json(call) for name, call in (("old", pair.old), ("new", pair.new)) if call}
        for pair in found.calls
    ]
    data = None if found.data is None else [*map(history.data_json, found.data)]
    return said | {"calls": calls, "data": data, "questions": asked.as_json(found.questions)}
