"""`--storage-option K=V`: options of the storage behind a URL, with the names of fsspec."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_KEPT = "satchel.storage_options"
_TEXTS = ("key", "secret", "token", "username", "user", "password", "passphrase", "profile", "account_key", "sas_token")
"""Options that are text even if they look like a number."""


def storage_option(function: F) -> F:
    """For every command that takes a workspace. The command itself does not get the value; `given` returns it."""
    return click.option(
        "--storage-option",
        multiple=True,
        metavar="K=V",
        expose_value=False,
        callback=_keep,
        help="An option of the storage behind a URL, with its fsspec name: endpoint_url=... You can repeat it.",
    )(function)


def _keep(ctx: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> None:
    """Errors never show the words, because most of them are secret."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip()
        if not equals or not name:
            raise click.BadParameter("a storage option is NAME=VALUE, as in endpoint_url=http://127.0.0.1:8333")
        found[name] = value if name in _TEXTS else _value(value)
    ctx.meta[_KEPT] = found


def _value(text: str) -> Any:
    """JSON if it can be parsed; else text, also for a number that JSON would change."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, float | int) and json.dumps(value) != text else value


def given() -> dict[str, Any]:
    """The options on this command line."""
    ctx = click.get_current_context(silent=True)
    options: dict[str, Any] = ctx.meta.get(_KEPT, {}) if ctx else {}
    return options
