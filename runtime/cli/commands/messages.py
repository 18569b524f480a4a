"""`satchel messages cut`: end the conversation of an agent after one of its messages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem
from msgspec.structs import asdict

from ...control import Handle
from ..options.place import complete_folders, find, json_option
from ..options.position import of_named
from ..options.storage import storage_option
from ..render.output import columns, fold, print_json, remarks
from ..render.words import cut as shortened
from ..render.words import visible

_EXAMPLES = """\b
Examples:
  satchel messages cut my-digest --after 57    "seq": 57 is the last
  satchel messages cut my-digest --after 0     it begins again
"""
_NEWEST = 50


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The newest messages of the workspace that was named."""
    agent = ctx.params.get("agent") or ""
    return of_named(ctx, lambda place: _newest(place, agent), incomplete)


def _newest(place: Handle, agent: str) -> Iterator[CompletionItem]:
    found = next((each.messages for each in place.show().agents if each.path == agent), None)
    for each in (found or ())[-_NEWEST:]:
        text = f"{each['role']}: {msgspec.json.encode(each['content']).decode()}"
        yield CompletionItem(str(each["seq"]), help=shortened(visible(text), 60))


@click.group("messages", epilog=_EXAMPLES)
def command() -> None:
    """Cut off the conversation of a run. To change it, edit messages.jsonl."""


@command.command("cut", epilog=_EXAMPLES)
@click.argument("workspace", metavar="WS", shell_complete=complete_folders)
@click.option(
    "--after",
    type=click.IntRange(min=0),
    required=True,
    metavar="SEQ",
    shell_complete=_complete,
    help="The `seq` of the message that becomes the last one, or 0: none stays.",
)
@click.option("--agent", default="", metavar="AGENT", help="The conversation of a sub-agent, such as left/deep.")
@json_option
@storage_option
def cut(workspace: str, after: int, agent: str, as_json: bool) -> None:
    """End the conversation after a message. What comes after it is no longer said, and stays in the log.

    It is an edit of messages.jsonl. A process that runs the workspace takes it at its next safe point. A call of a tool
    and its results are not parted.
    """
    place = find(workspace)
    found = place.cut_messages(after, agent=agent)
    if as_json:
        result: dict[str, Any] = {**asdict(found), "exit_code": 0, "report": [asdict(each) for each in found.report]}
        print_json(result)
        return
    width = columns(sys.stdout)
    told = [each for each in found.report[1:] if each.kind != "edited"]
    for line in remarks(told, width):
        click.echo(line)
    for say in found.says or ("nothing comes after it",):
        click.echo("\n".join(fold(visible(f"{found.file}: {say}"), width, 2)))
    if found.waits_for:
        click.echo(visible(f"{found.waits_for} takes it at its next safe point"), err=True)
    elif found.says:
        click.echo(f"next: {place.command('resume')}", err=True)
