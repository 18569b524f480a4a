"""The token that every request must show, as `Authorization: Bearer TOKEN`.

It comes from the environment or from a file, never from the command line, which `ps` shows to all users.
"""

from __future__ import annotations

import hmac

from ...workspace.base import UsageError

VARIABLE = "SATCHEL_LISTEN_TOKEN"
_LEAST = 16  # characters
_MAKE = "`openssl rand -hex 32` makes one"


def parse(written: str) -> list[bytes]:
    """The valid tokens: several, with spaces between them, while one replaces another. UsageError if there is none."""
    found = written.split()
    if not found:
        raise UsageError(
            "listening needs a token",
            remedy=f"set {VARIABLE} or --token-file ({_MAKE}), or use --no-token for an address of this machine",
        )  # fmt: skip
    if any(len(each) < _LEAST for each in found):
        raise UsageError(f"the token has fewer than {_LEAST} characters", remedy=f"take a longer one: {_MAKE}")
    return [each.encode() for each in found]


def is_valid(shown: str, tokens: list[bytes]) -> bool:
    """Whether the value of an `Authorization` header has one of the tokens. Takes the same time for each wrong one."""
    scheme, _, token = shown.partition(" ")
    matches = [hmac.compare_digest(token.strip().encode(), each) for each in tokens]
    return scheme.lower() == "bearer" and any(matches)
