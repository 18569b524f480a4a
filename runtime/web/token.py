"""The token that requests must show.

It comes from the environment or from a file, never from the command line, which `ps` shows to all users.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from ...workspace.base import UsageError

_LEAST = 16  # characters
_MAKE = "take a longer one: `openssl rand -hex 32` makes one"


def tokens_of(written: str) -> tuple[str, ...]:
    """The valid tokens: several, with white space between them, while one replaces another; perhaps none. UsageError if
    one is too short."""
    found = tuple(written.split())
    if any(len(each) < _LEAST for each in found):
        raise UsageError(f"the token has fewer than {_LEAST} characters", remedy=_MAKE)
    return found


def is_bearer(header: str, tokens: Sequence[str]) -> bool:
    """Whether the value of an `Authorization` header has one of the tokens. Takes the same time for each wrong one."""
    scheme, _, shown = header.partition(" ")
    matches = [hmac.compare_digest(shown.strip().encode("utf-8", "replace"), each.encode()) for each in tokens]
    return scheme.lower() == "bearer" and any(matches)
