"""Check the arguments of public functions before anything else happens. A wrong type or an impossible value is a
UsageError that names the argument."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from . import urls
from .errors import UsageError
from .names import NAME_BYTES
from .text import visible

_LONGEST = 80  # characters of a value that is shown


def place(name: str, value: Any) -> str:
    """A folder or URL as text. The `~` of a path is the home folder."""
    typed = os.fspath(value) if isinstance(value, str | os.PathLike) else value
    if not isinstance(typed, str) or not typed:
        raise _wrong(name, value, "give a path or URL as text, or a pathlib.Path")
    if "\0" in typed:
        raise _wrong(name, value, "a path has no NUL character")
    try:
        encoded = os.fsencode(typed)  # not as text: the name of a folder may be other bytes
    except UnicodeEncodeError as error:
        raise _wrong(name, value, "give a path without half characters (surrogates)", str(error)) from None
    if urls.is_remote(typed):
        return typed
    if (longest := max(map(len, encoded.split(b"/")))) > NAME_BYTES:
        raise _wrong(name, value, "use a shorter name", f"a name in it has {longest} bytes, and may have {NAME_BYTES}")
    return urls.local(typed)


def target(name: str, value: Any) -> str:
    """A folder or URL where a run is to be. Its name must be text."""
    urls.check_text(typed := place(name, value))
    return typed


def seconds(name: str, value: Any) -> float | None:
    """A length of time; None if none was given."""
    if value is not None and not (_is_number(value, int | float) and math.isfinite(value) and value >= 0):
        raise _wrong(name, value, "give seconds as a number, 0 or more")
    return value if value is None else float(value)


def count(name: str, value: Any, *, least: int) -> int | None:
    """A number; None if it is left open."""
    if value is not None and not (_is_number(value, int) and value >= least):
        raise _wrong(name, value, f"give a whole number, {least} or more, or None")
    return None if value is None else int(value)


def text(name: str, value: Any) -> str:
    """A text that can be kept in a file."""
    if not isinstance(value, str):
        raise _wrong(name, value, "give a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        remedy = "give a text without half characters (surrogates): satchel.clean(text) is one"
        raise _wrong(name, value, remedy, str(error)) from None
    return value


def function(name: str, value: Any) -> None:
    """A callable, or None."""
    if value is not None and not callable(value):
        raise _wrong(name, value, "give a function, or None")


def aware(call: str, at: datetime, why: str) -> datetime:
    """A moment that is the same on every machine. `call` took it, and `why` that matters there."""
    if at.tzinfo is None:
        raise UsageError(
            f"{call} got {at} without a time zone",
            why=why,
            remedy="use an aware datetime, as datetime.now(timezone.utc) gives",
        )
    return at


def no_loop(method: str, instead: str = "") -> None:
    """UsageError where an event loop is running: a method that waits would let it stand still. `instead`: what to call
    there, if that is not the method's own version for a loop."""
    if "asyncio" not in sys.modules:  # it is slow to import, and then no loop runs
        return
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        f"{method}() can't be called where an event loop is running",
        why="the loop would stand still until it returns",
        remedy=instead or f"call `await {method}_async(...)` there, with the same arguments",
    )


def mapping(name: str, value: Any) -> dict[str, Any]:
    """Values by name; empty for None. Errors never show the values, because some are secret."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} can't be of the type {type(value).__name__}", remedy="give a dict with names as keys")
    if wrong := next((key for key in value if not isinstance(key, str)), None):
        raise UsageError(f"{name} can't have the key {wrong!a}", remedy="give a dict with names as keys")
    return dict(value)


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _wrong(name: str, value: Any, remedy: str, why: str | None = None) -> UsageError:
    shown = visible(ascii(value))
    found = shown if len(shown) <= _LONGEST else f"of the type {type(value).__name__}"
    return UsageError(f"{name} can't be {found}", why=why, remedy=remedy)
