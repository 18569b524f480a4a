"""The workspace that a command is about: named on the command line, or the current folder."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem

from ...workspace import tombstone, urls
from ...workspace.errors import UsageError
from ...workspace.names import DEFINITION
from ...workspace.store import Store, open_store
from . import storage
from .words import visible

F = TypeVar("F", bound=Callable[..., Any])

_PATIENCE = 12.0
"""Seconds for which a request of a command is tried again."""
_REMOTE_LOOK = 1.5
"""Seconds between two looks of a command that waits, at a workspace in a bucket."""


class Place(NamedTuple):
    store: Store
    typed: str  # as on the command line; empty if it is the current folder

    def command(self, name: str, *words: str) -> str:
        """A command about this workspace, as the same person can type it."""
        return visible(shlex.join(["satchel", name, *([self.typed] if self.typed else []), *words]))


def find(typed: str | None, *, to_run: bool = False, is_child: bool = False) -> Place:
    """The workspace at `typed`, or the one that the current folder is. UsageError if there is none.

    A run bears with a storage that does not answer for a while, and a person at a terminal does not: so `to_run` first
    looks as any other command does, unless this `is_child` of a process that has done that.
    """
    if typed is None:
        storage.use(".")
        if not os.path.isfile(DEFINITION) and not os.path.isfile(tombstone.PATH):
            raise UsageError(
                "the current folder is not a workspace", why=f"there is no {DEFINITION} in it",
                remedy="name one, or look for some with `satchel ls`",
            )  # fmt: skip
        return Place(open_store("."), "")
    path = urls.local(typed)
    if os.path.isfile(path):
        folder = os.path.dirname(path) or "."
        remedy = f"name its folder: {shlex.quote(folder)}" if os.path.basename(path) == DEFINITION else None
        raise UsageError("is a file, and a workspace is a folder", path=typed, remedy=remedy)
    store = None if is_child else reach(typed)
    if store is None or (to_run and store.abilities.remote):
        store = open_store(urls.checked(typed))
    return Place(store, typed)


def reach(typed: str) -> Store:
    """The store at a path or URL, with what was said about its storage on the command line. What is wrong with the
    address or the credentials of a URL is told at once."""
    place = urls.checked(typed)
    storage.use(place)
    if not urls.is_remote(place):
        return open_store(place)
    urls.check_protocol(place)
    store = open_store(place, patience=_PATIENCE)
    store.refresh()
    return store


def root_of(typed: str) -> Store | None:
    """The store that holds workspaces at a URL; None of a folder. UsageError if it is neither."""
    place = urls.checked(typed)
    if urls.is_remote(place):
        return reach(place)
    storage.use(place)
    if not os.path.isdir(urls.local(place)):
        is_file = os.path.exists(urls.local(place))
        raise UsageError("is a file, not a folder" if is_file else "no such folder", path=typed)
    return None


def is_workspace(word: str) -> bool:
    """Whether a word of the command line is a workspace, or a URL, which is nothing else."""
    return urls.is_remote(word) or os.path.isfile(os.path.join(urls.local(word), DEFINITION))


def look_again(store: Store, seconds: float) -> None:
    """Wait, before one looks whether something has changed. Where that costs requests it takes a second or two."""
    time.sleep(max(seconds, _REMOTE_LOOK) if store.abilities.remote else seconds)
    store.refresh()


def complete_folders(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of a URL nothing: what a key press costs must not depend on a network."""
    return [] if "://" in incomplete else [CompletionItem(incomplete, type="dir")]


def workspace_argument(function: F) -> F:
    """The argument [WS]. The command gets it as `workspace`, for `find`."""
    argument = click.argument("workspace", required=False, metavar="[WS]", shell_complete=complete_folders)
    return argument(storage.storage_option(function))


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(function)
