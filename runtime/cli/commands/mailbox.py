"""`satchel send` and `messages`: what a run is told, and its conversation."""

from __future__ import annotations

import glob
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem
from msgspec.structs import asdict

from ....workspace.base import UsageError, decode, urls, visible
from ....workspace.inbound.inbox import inbox
from ...api import Handle
from ...present import cut
from ..options import complete_folders, find, is_workspace, json_option, of_named, storage_option
from ..render.output import columns, fold, print_json, remarks

_FILE = re.compile(r"\S+\.(md|txt|yaml|yml|json)")
"""A word that looks like this is hardly the text of a task."""
_OF_PAGES = ("http", "https")
"""URLs that may be the whole text of a task."""

_SEND_EXAMPLES = """\b
Examples:
  satchel send my-digest "Summarise the letter of 3 May as well"
  satchel send my-digest @order-17.yaml @order-18.yaml
  pbpaste | satchel send my-digest -
  satchel send my-digest --key "order 17" @order-17.yaml
  satchel send my-digest --message "Ada is on holiday; ask Grace instead"
"""


def _complete_content(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    if ctx.params.get("words"):
        return [CompletionItem(f"@{path}") for path in sorted(glob.glob(f"{glob.escape(incomplete.lstrip('@'))}*"))]
    return complete_folders(ctx, parameter, incomplete)


@click.command("send", epilog=_SEND_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[WS] TEXT|@FILE|-...", shell_complete=_complete_content)
@click.option("--message", "as_message", is_flag=True, help="Send a message to the agent, not a task.")
@click.option("--key", default="", metavar="KEY", help="Send it once, however often the command is repeated.")
@json_option
@storage_option
def send_command(words: tuple[str, ...], as_message: bool, key: str, as_json: bool) -> None:
    """Put tasks into the inbox of a run: a text, files (@order.yaml: .md and .txt are texts; .yaml, .yml and .json are
    data), or standard input (-).

    This works whether or not a process runs the workspace. Prints the paths.
    """
    place, contents = _split(words)
    sent = place.send(*map(_content, contents), message=as_message, key=key)
    if as_json:
        print_json([{"file": each.file, "kind": each.kind} for each in sent])
    else:
        for each in sent:
            click.echo(visible(urls.join(place.url, each.file)))


def _split(words: tuple[str, ...]) -> tuple[Handle, tuple[str, ...]]:
    match words:
        case ():
            raise UsageError("say what to send", remedy='for example `satchel send WS "the task"`')
        case (word,) if is_workspace(word) and urls.protocol(word) not in _OF_PAGES:
            raise UsageError(f"say what to send to {word}", remedy='for example `satchel send WS "the task"`')
        case (word,):
            return find(None), (word,)
        case (folder, *contents):
            return find(folder), tuple(contents)
    raise AssertionError(words)


def _content(word: str) -> str | Path:
    """The meaning of a word on the command line: standard input, a file, or a text, whatever files there are."""
    if word == "-":
        return decode(sys.stdin.buffer.read(inbox.LIMIT + 1), "standard input")
    if word.startswith("@"):
        return Path(word[1:])
    if _FILE.fullmatch(word):
        raise UsageError(
            f"{word} is the name of a file",
            remedy=f"`@{word}` sends what is in it; a text like this is sent from standard input (`-`)",
        )
    return word


_MESSAGES_EXAMPLES = """\b
Examples:
  satchel messages cut my-digest --after 57    "seq": 57 is the last
  satchel messages cut my-digest --after 0     it begins again
"""
_NEWEST = 50


def _complete_message(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The newest messages of the workspace that was named."""
    agent = ctx.params.get("agent") or ""
    return of_named(ctx, lambda place: _newest(place, agent), incomplete)


def _newest(place: Handle, agent: str) -> Iterator[CompletionItem]:
    found = next((each.messages for each in place.history.show().agents if each.path == agent), None)
    for each in (found or ())[-_NEWEST:]:
        text = f"{each['role']}: {msgspec.json.encode(each['content']).decode()}"
        yield CompletionItem(str(each["seq"]), help=cut(visible(text), 60))


@click.group("messages", epilog=_MESSAGES_EXAMPLES)
def messages_command() -> None:
    """Cut off the conversation of a run. To change it, edit messages.jsonl."""


@messages_command.command("cut", epilog=_MESSAGES_EXAMPLES)
@click.argument("workspace", metavar="WS", shell_complete=complete_folders)
@click.option(
    "--after",
    type=click.IntRange(min=0),
    required=True,
    metavar="SEQ",
    shell_complete=_complete_message,
    help="The `seq` of the message that becomes the last one, or 0: none stays.",
)
@click.option("--agent", default="", metavar="AGENT", help="The conversation of a sub-agent, such as left/deep.")
@json_option
@storage_option
def messages_cut_command(workspace: str, after: int, agent: str, as_json: bool) -> None:
    """End the conversation after a message. What comes after it is no longer said, and stays in the log.

    It is an edit of messages.jsonl. A process that runs the workspace takes it at its next safe point. A call of a tool
    and its results are not parted.
    """
    place = find(workspace)
    found = place.files.cut_messages(after, agent=agent)
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
