"""`satchel send`: put work, or a message, into a run's inbox."""

from __future__ import annotations

import os
import re
import sys
from typing import Literal, NamedTuple

import click
from click.shell_completion import CompletionItem

from ...workspace import inbox, urls
from ...workspace.errors import UsageError
from ...workspace.looking import look_beside
from ...workspace.textfile import decode
from .output import print_json
from .place import Place, complete_folders, find, is_workspace, json_option
from .standing import in_force
from .storage import storage_option
from .words import visible

_DATA = (".yaml", ".yml", ".json")
_PATH = re.compile(r"[^\s]*(/[^\s]*|\.(md|txt|yaml|yml|json))")
"""What nobody would write as a task."""
_OF_PAGES = ("http", "https")
"""URLs that may be all there is to a task."""

_EXAMPLES = """\b
Examples:
  satchel send my-digest "Summarise the letter of 3 May as well"
  satchel send my-digest order-17.yaml order-18.yaml
  pbpaste | satchel send my-digest -
  satchel send my-digest --message "Ada is on holiday; ask Grace instead"
"""


class _Parcel(NamedTuple):
    data: bytes
    extension: Literal["md", "yaml"]
    words: str  # for the file's name


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    if ctx.params.get("words"):
        return [CompletionItem(incomplete, type="file")]
    return complete_folders(ctx, parameter, incomplete)


@click.command("send", short_help="Put work or a message into its inbox.", epilog=_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[WS] TEXT|FILE|-...", shell_complete=_complete)
@click.option("--message", "as_message", is_flag=True, help="A message to the agent, and not a task of its own.")
@json_option
@storage_option
def command(words: tuple[str, ...], as_message: bool, as_json: bool) -> None:
    """Drop tasks into the inbox of a run: a text, files (.md and .txt are texts; .yaml, .yml and .json are data), or
    what stands on standard input. It works whether or not a process runs the workspace. Prints the paths.
    """
    place, contents = _split(words)
    seen = look_beside(place.store)
    if seen.moment.status == "cancelled":
        raise UsageError(
            "was cancelled, and takes no tasks any more", path=place.store.url,
            remedy="send them to another run; `satchel new` makes one",
        )  # fmt: skip
    parcels = [_pack(content, as_message) for content in contents]  # all are looked at before the first is sent
    for parcel in parcels:
        inbox.parse(f"{parcel.words or 'the text'}.{parcel.extension}", parcel.data)
    sent = [inbox.send(place.store, *parcel) for parcel in parcels]
    if seen.mistake:
        click.echo(visible(f"note: {in_force(seen.mistake)}"), err=True)
    if as_json:
        print_json([{"file": path, "kind": "message" if as_message else "task"} for path in sent])
    else:
        for path in sent:
            click.echo(visible(urls.join(place.store.url, path)))


def _split(words: tuple[str, ...]) -> tuple[Place, tuple[str, ...]]:
    match words:
        case ():
            raise UsageError("say what to send", remedy='as in `satchel send WS "the task"`')
        case (word,) if is_workspace(word) and urls.protocol(word) not in _OF_PAGES:
            raise UsageError(f"say what to send to {word}", remedy='as in `satchel send WS "the task"`')
        case (word,):
            return find(None), (word,)
        case (folder, *contents):
            return find(folder), tuple(contents)
    raise AssertionError(words)


def _pack(content: str, as_message: bool) -> _Parcel:
    """What one word of the command line means. UsageError or InvalidFile if it means nothing."""
    if content == "-":
        return _wrapped(decode(sys.stdin.buffer.read(inbox.LIMIT + 1), "standard input"), as_message, "")
    if os.path.isdir(content):
        raise UsageError("is a folder", path=content, remedy="name the files in it")
    if not os.path.exists(content):
        if _PATH.fullmatch(content):
            raise UsageError(
                "no such file", path=content, remedy="to send it as a text, write it to `satchel send WS -`"
            )
        return _wrapped(content, as_message, "")
    with open(content, "rb") as file:
        data = file.read(inbox.LIMIT + 1)
    stem, extension = os.path.splitext(os.path.basename(content))
    if extension.lower() not in _DATA:
        return _wrapped(decode(data, content), as_message, stem)
    if as_message:
        raise UsageError("is data, and a message is a text", path=content)
    return _Parcel(data, "yaml", stem)


def _wrapped(text: str, as_message: bool, words: str) -> _Parcel:
    if not text.strip():
        raise UsageError("there is nothing in it to send", path=words or None, remedy="write what is to be done")
    if as_message:
        return _Parcel(inbox.message(text), "yaml", words)
    return _Parcel(text.encode() if text.endswith("\n") else f"{text}\n".encode(), "md", words)
