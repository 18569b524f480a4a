"""A position in the history of a run, and an item, as arguments after the workspace."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from ....workspace.base import SatchelError, urls
from ....workspace.history import LATEST
from ....workspace.state import checkpoint
from ...control import Handle
from .place import complete_folders, find, is_workspace


def split(words: tuple[str, ...], most: int) -> tuple[Handle, tuple[str, ...]]:
    """The workspace, or that of the current folder, and the words after it, `most` of them."""
    is_named = bool(words) and is_workspace(words[0])
    rest = words[1:] if is_named else words
    if len(rest) > most:
        find(words[0])  # says that there is no such workspace
        raise click.UsageError(f"there are too many arguments: {' '.join(rest[most:])}")
    return find(words[0] if is_named else None), rest


def complete_position(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """A folder, then the checkpoints and items of the workspace that was named, or is the current folder."""
    named = list(ctx.params.get("words") or ())
    if any(urls.is_remote(word) for word in (*named, incomplete)):
        return []  # a key press must not wait for a network
    folder = named[0] if named and is_workspace(named[0]) else None
    try:
        place = find(folder)
        points = [path.removeprefix("checkpoints/").removesuffix(".json") for path in checkpoint.paths(place.store)]
        items = [CompletionItem(work.names[0], help=work.title) for work in place.steps().work if work.scope]
    except (SatchelError, OSError):
        return complete_folders(ctx, parameter, incomplete)
    every = [*items, *map(CompletionItem, points), CompletionItem(LATEST)]
    found = [item for item in every if str(item.value).startswith(incomplete)]
    return found + ([] if named else complete_folders(ctx, parameter, incomplete))
