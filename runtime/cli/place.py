"""The workspace that a command is about: named on the command line, or the current folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem

from ...workspace.errors import UsageError
from ...workspace.names import DEFINITION
from ...workspace.store import Store, open_store

F = TypeVar("F", bound=Callable[..., Any])


class Place(NamedTuple):
    store: Store
    typed: str  # as on the command line; empty if it is the current folder

    def command(self, name: str, *words: str) -> str:
        """A command about this workspace, as the same person can type it."""
        return shlex.join(["satchel", name, *([self.typed] if self.typed else []), *words])


def find(typed: str | None) -> Place:
    """The workspace at `typed`, or the one that the current folder is. UsageError if there is none."""
    if typed is None:
        if not os.path.isfile(DEFINITION):
            raise UsageError(
                "the current folder is not a workspace", why=f"there is no {DEFINITION} in it",
                remedy="name one, or look for some with `satchel ls`",
            )  # fmt: skip
        return Place(open_store("."), "")
    if os.path.isfile(typed):
        folder = os.path.dirname(typed) or "."
        remedy = f"name its folder: {shlex.quote(folder)}" if os.path.basename(typed) == DEFINITION else None
        raise UsageError("is a file, and a workspace is a folder", path=typed, remedy=remedy)
    return Place(open_store(typed), typed)


def complete_folders(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def workspace_argument(function: F) -> F:
    """The argument [WS]. The command gets it as `workspace`, for `find`."""
    return click.argument("workspace", required=False, metavar="[WS]", shell_complete=complete_folders)(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(function)
