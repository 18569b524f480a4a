"""`--storage-option K=V`: what the storage behind a URL needs to know, as fsspec calls it.

It goes into the environment, as fsspec reads it there: so it holds for the processes that are started, too, and no
secret stands in their command lines.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ...workspace import urls
from ...workspace.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

_KEPT = "satchel.storage_options"
_TEXTS = ("key", "secret", "token", "username", "user", "password", "passphrase", "profile", "account_key", "sas_token")
"""What is text even if it looks like a number."""


def storage_option(function: F) -> F:
    """For every command that takes a workspace. The command itself gets nothing of it: `use` does."""
    return click.option(
        "--storage-option", multiple=True, metavar="K=V", expose_value=False, callback=_keep,
        help="What the storage behind a URL needs to know, as fsspec calls it: endpoint_url=...; may be given again.",
    )(function)  # fmt: skip


def _keep(ctx: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> None:
    """The words are never shown in an error: most of them are secret."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip()
        if not equals or not name:
            raise click.BadParameter("a storage option is NAME=VALUE, as in endpoint_url=http://127.0.0.1:8333")
        found[name] = value if name in _TEXTS else _value(value)
    ctx.meta[_KEPT] = found


def _value(text: str) -> Any:
    """What parses as JSON is that; all else, and a number that JSON would change, is text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, float | int) and json.dumps(value) != text else value


def use(place: str) -> None:
    """Let what was given as options count for the storage of `place`, from now on. UsageError for a path."""
    ctx = click.get_current_context(silent=True)
    options: dict[str, Any] = ctx.meta.get(_KEPT, {}) if ctx else {}
    if not options:
        return
    if not urls.is_remote(place):
        raise UsageError("--storage-option is for URLs", path=place, why="this is a local folder",
                         remedy="leave it out")  # fmt: skip
    scheme = urls.protocol(place)
    put("s3" if scheme == "s3a" else scheme, options)


def put(scheme: str, options: dict[str, Any]) -> None:
    """Merge options into what the environment says for a protocol. They win over it."""
    name = f"FSSPEC_{scheme.upper()}"
    for key in list(os.environ):
        if key.upper() in {f"{name}_{option.upper()}" for option in options}:
            del os.environ[key]  # fsspec would let it win
    merged = {**_said(name), **options}
    os.environ[name] = json.dumps(merged)
    if (config := sys.modules.get("fsspec.config")) is not None:  # it has read the environment already
        config.conf.setdefault(scheme, {}).update(options)


def _said(name: str) -> dict[str, Any]:
    try:
        found = json.loads(os.environ.get(name) or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"the environment variable {name} is not a JSON object", remedy="mend it, or unset it")
    return found
