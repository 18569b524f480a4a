"""The workspace that a command is about: named on the command line, or the current folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ....workspace.base import DEFINITION, urls
from ... import control
from ...control import PATIENCE, Handle
from ..render.words import visible
from . import storage

F = TypeVar("F", bound=Callable[..., Any])


def find(typed: str | None, *, is_child: bool = False, with_options: bool = True) -> Handle:
    """The workspace at `typed`, or the one that the current folder is. UsageError if there is none. `is_child`: of a
    process that has looked before, so that the storage is given as much time as a run takes. `with_options`: what
    was said about the storage is said of this one."""
    options, patience = storage.given() if with_options else None, None if is_child else PATIENCE
    return control.open(typed, storage_options=options, tell=tell, patience=patience)


def tell(line: str) -> None:
    """Say what a person should know while something is at it."""
    click.echo(visible(line), err=True)


def is_workspace(word: str) -> bool:
    """Whether a word of the command line is a workspace, or a URL, which is nothing else."""
    return urls.is_remote(word) or os.path.isfile(os.path.join(urls.local(word), DEFINITION))


def complete_folders(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of a URL nothing: what a key press costs must not depend on a network."""
    return [] if "://" in incomplete else [CompletionItem(incomplete, type="dir")]


def workspace_argument(function: F) -> F:
    """The argument [WS]. The command gets it as `workspace`, for `find`."""
    argument = click.argument("workspace", required=False, metavar="[WS]", shell_complete=complete_folders)
    return argument(storage.storage_option(function))


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(function)
