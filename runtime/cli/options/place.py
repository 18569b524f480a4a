"""The workspace that a command is about: named on the command line, or the current folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from ....workspace.base import DEFINITION, UsageError, urls
from ... import control
from ...control import PATIENCE, Handle
from ..render.words import visible
from . import storage

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])


def find(typed: str | None, *, is_child: bool = False, with_options: bool = True) -> Handle:
    """The workspace at `typed`, or in the current folder. UsageError if there is none. `is_child`: a parent process has
    already looked, so the storage gets as much time as in a run. `with_options`: the storage options are for this
    one."""
    options, patience = storage.given() if with_options else None, None if is_child else PATIENCE
    try:
        return control.open(typed, storage_options=options, tell=tell, patience=patience)
    except UsageError as error:
        if (mistaken := _in_order(typed)) is not None:
            raise mistaken from error
        raise


def _in_order(typed: str | None) -> UsageError | None:
    """What to say if the command line names a workspace, but not first, where the command expects it."""
    ctx = click.get_current_context(silent=True)
    if ctx is None or (typed and is_workspace(typed)):
        return None
    arguments = [each.name or "" for each in ctx.command.params if each.param_type_name == "argument"]
    if "workspaces" in arguments:
        return None  # each word is one
    given = [ctx.params.get(name) for name in arguments]
    words = [word for value in given for word in (value if isinstance(value, tuple) else (value,)) if word]
    named = next((word for word in words if word != typed and os.path.isfile(os.path.join(word, DEFINITION))), None)
    if named is None:
        return None
    has_options = any(
        ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ctx.params if name not in arguments
    )
    command = shlex.join(["satchel", ctx.info_name or "", named, *(word for word in words if word != named)])
    what = f"{typed} is" if typed else "the current folder is"
    remedy = f"the workspace comes first: `{command}{' ...' if has_options else ''}`"
    return UsageError(f"{what} not a workspace, but {named} is", remedy=remedy)


def tell(line: str) -> None:
    """Print what a person should know while a command runs."""
    click.echo(visible(line), err=True)


def is_workspace(word: str) -> bool:
    """Whether a word of the command line is a workspace, or a URL, which can be nothing else."""
    return urls.is_remote(word) or os.path.isfile(os.path.join(urls.local(word), DEFINITION))


def complete_folders(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Nothing for a URL, because a key press must not wait for a network."""
    from click.shell_completion import CompletionItem

    return [] if "://" in incomplete else [CompletionItem(incomplete, type="dir")]


def workspace_argument(function: F) -> F:
    """The argument [WS]. The command gets it as `workspace`, for `find`."""
    argument = click.argument("workspace", required=False, metavar="[WS]", shell_complete=complete_folders)
    return argument(storage.storage_option(function))


def all_option(text: str) -> Callable[[F], F]:
    """The option --all [ROOT], which the command gets as `root`."""
    return click.option(
        "--all", "root", metavar="[ROOT]", is_flag=False, flag_value=".", shell_complete=complete_folders, help=text
    )


def json_option(function: F) -> F:
    """For a command whose result is one JSON value: a refusal is one, too."""
    text = "Print JSON, for programs."
    return click.option("--json", "as_json", is_flag=True, callback=note_json, help=text)(function)


def note_json(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    """Remember that a refusal is to be JSON, in one line."""
    if ctx.obj is not None:  # completion has none
        ctx.obj["json"] = value
    return value
