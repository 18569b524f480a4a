"""`satchel send`: put a task or a message into a run's inbox."""

from __future__ import annotations

import glob
import re
import sys
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from ....workspace.base import UsageError, decode, urls
from ....workspace.people.inbox import inbox
from ...control import Handle
from ..options.place import complete_folders, find, is_workspace, json_option
from ..options.storage import storage_option
from ..render.output import print_json
from ..render.words import visible

_FILE = re.compile(r"\S+\.(md|txt|yaml|yml|json)")
"""A word that looks like this is hardly the text of a task."""
_OF_PAGES = ("http", "https")
"""URLs that may be the whole text of a task."""

_EXAMPLES = """\b
Examples:
  satchel send my-digest "Summarise the letter of 3 May as well"
  satchel send my-digest @order-17.yaml @order-18.yaml
  pbpaste | satchel send my-digest -
  satchel send my-digest --key "order 17" @order-17.yaml
  satchel send my-digest --message "Ada is on holiday; ask Grace instead"
"""


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    if ctx.params.get("words"):
        return [CompletionItem(f"@{path}") for path in sorted(glob.glob(f"{glob.escape(incomplete.lstrip('@'))}*"))]
    return complete_folders(ctx, parameter, incomplete)


@click.command("send", epilog=_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[WS] TEXT|@FILE|-...", shell_complete=_complete)
@click.option("--message", "as_message", is_flag=True, help="Send a message to the agent, not a task.")
@click.option("--key", default="", metavar="KEY", help="Send it once, however often the command is repeated.")
@json_option
@storage_option
def command(words: tuple[str, ...], as_message: bool, key: str, as_json: bool) -> None:
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
