"""The token that requests must show.

It comes from the environment or from a file, never from the command line, which `ps` shows to all users.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from typing import BinaryIO

from ...workspace.base import UsageError

_LEAST = 16  # characters
_LONGEST = 10_000  # characters of a file
_MAKE = "`openssl rand -hex 32` makes one"


def given_token(variable: str, file: BinaryIO | None) -> str:
    """What the file has, or else the variable of the environment, which is removed: the runs that this process starts
    must not have the token of those who may start runs. Empty if there is neither.

    UsageError if it is there and has no token, or one that no request can show. An empty file may be a command that
    failed, so it must not let everybody in.
    """
    found = os.environ.pop(variable, None)
    if file is not None:
        found = file.read(_LONGEST).decode("ascii", "replace")
    place = file.name if file is not None else variable
    if found is None:
        return ""
    if not found.strip():
        raise UsageError("there is no token", path=place, remedy=_MAKE)
    if not found.isascii() or not "".join(found.split()).isprintable():
        raise UsageError("the token has other characters than ASCII", path=place, remedy=_MAKE)
    return found


def tokens_of(written: str) -> tuple[str, ...]:
    """The valid tokens: several, with white space between them, while one replaces another; perhaps none. UsageError if
    one is too short."""
    found = tuple(written.split())
    if any(len(each) < _LEAST for each in found):
        raise UsageError(f"the token has fewer than {_LEAST} characters", remedy=_MAKE)
    return found


def is_bearer(headers: Sequence[str], tokens: Sequence[str]) -> bool:
    """Whether the `Authorization` headers of a request are one, and it has one of the tokens. A proxy may look at
    another one of several. Takes the same time for each wrong one."""
    scheme, _, shown = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    matches = [hmac.compare_digest(shown.strip().encode("utf-8", "replace"), each.encode()) for each in tokens]
    return scheme.lower() == "bearer" and any(matches)
