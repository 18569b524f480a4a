"""A position in the history of a run, and an item, as arguments after the workspace."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from ....workspace.base import SatchelError, urls
from ....workspace.history import LATEST
from ....workspace.state import checkpoint
from ... import control
from ...control import Handle
from .place import complete_folders, find, is_workspace


def split(words: tuple[str, ...], most: int) -> tuple[Handle, tuple[str, ...]]:
    """The workspace, or that of the current folder, and the words after it, `most` of them."""
    is_named = bool(words) and (is_workspace(words[0]) or not (is_workspace(".") or _is_of_a_run(words[0])))
    rest = words[1:] if is_named else words
    if len(rest) > most:
        find(words[0])  # says that there is no such workspace
        raise click.UsageError(f"there are too many arguments: {' '.join(rest[most:])}")
    return find(words[0] if is_named else None), rest


def _is_of_a_run(word: str) -> bool:
    """Whether it is rather a record, an item or a file of a run than a folder that is not there."""
    return word.isdecimal() or word == LATEST or word.startswith(("^", "state.json", "todo.md", "messages.jsonl"))


def complete_position(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """A folder, then the checkpoints and items of the workspace that was named, or is the current folder."""
    named = list(ctx.params.get("words") or ())
    if any(urls.is_remote(word) for word in (*named, incomplete)):
        return []  # a key press must not wait for a network
    folder = named[0] if named and is_workspace(named[0]) else None
    try:
        every = _moments(find(folder))
    except (SatchelError, OSError):
        return complete_folders(ctx, parameter, incomplete)
    found = [item for item in every if str(item.value).startswith(incomplete)]
    return found + ([] if named else complete_folders(ctx, parameter, incomplete))


def complete_moment(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The checkpoints and items of the workspace that was named, or is the current folder: the value of an option."""
    return of_named(ctx, _moments, incomplete, default=".")


def complete_item(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The items of the workspace that was named."""
    return of_named(ctx, _items, incomplete)


def complete_change(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The settings and prompts of the workspace that was named, as `--set` takes them."""
    return of_named(ctx, lambda place: map(CompletionItem, control.changes(place)), incomplete)


def of_named(
    ctx: click.Context, make: Callable[[Handle], Iterable[CompletionItem]], incomplete: str, default: str = ""
) -> list[CompletionItem]:
    """What `make` finds in the workspace that was named, also while the option that is completed has no value."""
    words = [ctx.params.get("workspace"), *(ctx.params.get("words") or ()), *ctx.args]
    named = next((word for word in words if word and word[:1] != "-"), "")  # not taken yet while an option has no value
    if default and not (named and is_workspace(named)):
        named = default
    try:
        found = make(find(named)) if named and not urls.is_remote(named) else ()
        return [item for item in found if str(item.value).startswith(incomplete)]
    except (SatchelError, OSError):
        return []


def _moments(place: Handle) -> list[CompletionItem]:
    points = [path.removeprefix("checkpoints/").removesuffix(".json") for path in checkpoint.paths(place.store)]
    return [*_items(place), *map(CompletionItem, points), CompletionItem(LATEST)]


def _items(place: Handle) -> list[CompletionItem]:
    works = {work.names[0]: work.title for work in place.steps().work if work.scope}
    return [CompletionItem(name, help=title) for name, title in works.items()]
