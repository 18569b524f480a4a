"""The token that every request must show, as `Authorization: Bearer TOKEN`.

It comes from the environment or from a file, never from the command line, which `ps` shows to all users.
"""

from __future__ import annotations

import hmac
import os

from ...workspace.base import UsageError

VARIABLE = "SATCHEL_LISTEN_TOKEN"
FILE_VARIABLE = "SATCHEL_LISTEN_TOKEN_FILE"
_LEAST = 16  # characters
_MAKE = "`openssl rand -hex 32` makes one"


def tokens() -> list[bytes]:
    """The valid tokens: several, with spaces between them, while one replaces another. UsageError if there is none."""
    written, source = os.environ.get(VARIABLE, ""), VARIABLE
    if not written and (path := os.environ.get(FILE_VARIABLE)):
        source = path
        try:
            with open(path, encoding="utf-8") as file:
                written = file.read()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise UsageError(f"the file that {FILE_VARIABLE} names can't be read", path=path, why=why) from error
    found = written.split()
    if not found:
        raise UsageError(
            "listening needs a token", why=f"{VARIABLE} and {FILE_VARIABLE} are empty",
            remedy=f"set one of them ({_MAKE}), or use --no-token for an address of this machine",
        )  # fmt: skip
    if any(len(each) < _LEAST for each in found):
        raise UsageError(
            f"a token of fewer than {_LEAST} characters", path=source, remedy=f"take a longer one: {_MAKE}"
        )
    return [each.encode() for each in found]


def is_valid(shown: str, tokens: list[bytes]) -> bool:
    """Whether the value of an `Authorization` header has one of the tokens. Takes the same time for each wrong one."""
    scheme, _, token = shown.partition(" ")
    matches = [hmac.compare_digest(token.strip().encode(), each) for each in tokens]
    return scheme.lower() == "bearer" and any(matches)
