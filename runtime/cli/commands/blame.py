"""`satchel blame`: which record set each value."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem

from ....workspace.base import SatchelError, urls
from ....workspace.history import Origin
from ....workspace.state import folder_of_agent
from ...control import Blame, Blamed
from ..options.place import complete_folders, find, is_workspace, json_option
from ..options.position import split
from ..options.storage import storage_option
from ..render import history
from ..render.output import columns, print_json
from ..render.words import cut, utc, visible

_WIDE = 40  # columns of a path, and of a value

_EXAMPLES = """\b
Examples:
  satchel blame my-digest                             all values of the data
  satchel blame my-digest state.json/summaries        all below a key
  satchel blame my-digest agents/reader/state.json    the data of a sub-agent
  satchel blame my-digest todo.md/^3                  who wrote and ticked it
  satchel blame my-digest messages.jsonl/57           who said it
"""


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    named = list(ctx.params.get("words") or ())
    if any(urls.is_remote(word) for word in (*named, incomplete)):
        return []  # a key press must not wait for a network
    try:
        place = find(named[0] if named and is_workspace(named[0]) else None)
        agents = place.show().agents
    except (SatchelError, OSError):
        return complete_folders(ctx, parameter, incomplete)
    folders = [folder_of_agent(each.path) for each in agents]
    files = [
        CompletionItem(folder + file) for folder in folders for file in ("state.json", "todo.md", "messages.jsonl")
    ]
    found = [item for item in files if str(item.value).startswith(incomplete)]
    return found + ([] if named else complete_folders(ctx, parameter, incomplete))


@click.command("blame", epilog=_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[WS] [PATH]", shell_complete=_complete)
@json_option
@storage_option
def command(words: tuple[str, ...], as_json: bool) -> None:
    """Show which record set each value: the commit of an item, a person's edit, a migration, and with which prompts.

    PATH is state.json (the default), todo.md or messages.jsonl, of a sub-agent agents/NAME/state.json, and then what is
    in it. A `/` in
    a key is written ~1. The columns are the place, the value, the record (`satchel show` shows the run there), its time
    and what it was.
    """
    place, rest = split(words, 1)
    found = place.blame(*rest)
    if as_json:
        print_json(_as_json(found))
        return
    for line in _told(found, columns(sys.stdout)):
        click.echo(line)
    if not found.values:
        click.echo(visible(f"{found.file} has no values yet"), err=True)
    if found.problem:
        click.echo(visible(f"note: up to record {found.newest:,}; {found.problem}"), err=True)


def _as_json(found: Blame) -> dict[str, Any]:
    values = [
        {
            "path": each.path,
            "value": each.value,
            "origin": msgspec.to_builtins(each.origin),
            "brought_back_by": each.brought_back_by or None,
        }
        for each in found.values
    ]
    return {"file": found.file, "values": values, "newest": found.newest, "problem": found.problem}


def _told(found: Blame, width: int) -> Iterator[str]:
    paths = [cut(visible(each.path or "/"), _WIDE) for each in found.values]
    values = [history.short(each.value, _WIDE) for each in found.values]
    wide = max(map(len, paths), default=0), max(map(len, values), default=0)
    for path, value, each in zip(paths, values, found.values, strict=True):
        origin = each.origin
        text = f"{path:<{wide[0]}}  {value:<{wide[1]}}  {origin.seq:>6}  {utc(origin.at):<20}  {_what(each)}"
        yield history.line(text.rstrip(), width)


def _what(each: Blamed) -> str:
    origin = each.origin
    said = _WORDS[origin.kind](origin)
    said += "".join(f" [prompt {name}@{'/'.join(versions)}]" for name, versions in origin.prompts.items())
    said += "".join(f"; {hand.did} by {hand.by} (record {hand.seq})" for hand in origin.people)
    return said + (f"; brought back by record {each.brought_back_by:,}" if each.brought_back_by else "")


def _scope(origin: Origin) -> str:
    if not origin.scope:
        return "the agent itself"
    named = origin.scope[1:] if origin.scope.startswith("_") else f"^{origin.scope} {origin.title}"
    return f"{origin.agent}: {named}" if origin.agent else named


_WORDS = {
    "commit": lambda origin: _scope(origin),
    "begun": lambda origin: f"begun: {_scope(origin)}",
    "edit": lambda origin: f"edited by {origin.by}",
    "plan": lambda origin: f"plan changed by {origin.by}",
    "migration": lambda origin: f"migration to version {origin.version} of the state type",
    "earlier": lambda origin: f"record {origin.seq:,} or earlier",
}
