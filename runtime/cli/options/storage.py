"""`--storage-option K=V`: what the storage behind a URL needs to know, as fsspec calls it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_KEPT = "satchel.storage_options"
_TEXTS = ("key", "secret", "token", "username", "user", "password", "passphrase", "profile", "account_key", "sas_token")
"""What is text even if it looks like a number."""


def storage_option(function: F) -> F:
    """For every command that takes a workspace. The command itself gets nothing of it: `given` tells."""
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


def given() -> dict[str, Any]:
    """What was given on this command line."""
    ctx = click.get_current_context(silent=True)
    options: dict[str, Any] = ctx.meta.get(_KEPT, {}) if ctx else {}
    return options
