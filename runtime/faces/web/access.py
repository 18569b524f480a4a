"""Who may send requests to a server: the token that they must show, and what slows down those who guess it.

A token comes from the environment or from a file, never from the command line, which `ps` shows to all users.

Who asks from one address may show a few wrong ones. Each further one is answered a second after the one before. While
many wait for that, nothing from this address is looked at, so that no more can be tried by asking at once. What was
shown before says nothing new, so a sender with an old token hinders no other one behind the same proxy.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from asyncio import sleep
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from msgspec import Struct, field

from ....workspace.base import UsageError

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


PAUSE = 1.0
"""Seconds between two answers."""

FREE = 10
"""Wrong tokens that are answered at once."""

WAITING = 10
"""Answers that an address may wait for."""

_KNOWN = 100  # wrong tokens of an address that are remembered
_ADDRESSES = 1_000


class _Guesser(Struct):
    """An address. `due`: when all that it has tried is paid for, by time.monotonic."""

    due: float = 0.0
    shown: dict[bytes, None] = field(default_factory=dict)


class Guesses:
    """The wrong tokens that a server was shown. For one event loop. A `scope` is that of ASGI."""

    def __init__(self) -> None:
        self._guessers: dict[str, _Guesser] = {}

    def are_too_many(self, scope: Mapping[str, Any]) -> bool:
        """Whether a request is to be refused without a look at its token."""
        found = self._guessers.get(_address(scope))
        return found is not None and found.due - time.monotonic() > (FREE + WAITING - 1) * PAUSE

    async def slow_down(self, scope: Mapping[str, Any], shown: str) -> None:
        """Wait before the answer to a wrong token. Empty: none was shown, which is no guess."""
        if (wait := self._count(_address(scope), shown) if shown else 0.0) > 0:
            await sleep(wait)

    def _count(self, address: str, shown: str) -> float:
        """The seconds that the answer has to wait."""
        now = time.monotonic()
        if address not in self._guessers and len(self._guessers) >= _ADDRESSES:
            self._guessers = {key: each for key, each in self._guessers.items() if each.due > now}
        guesser = self._guessers.setdefault(address, _Guesser())
        digest = hashlib.sha256(shown.encode("utf-8", "replace")).digest()
        if digest in guesser.shown:
            return 0.0
        guesser.shown[digest] = None
        if len(guesser.shown) > _KNOWN:
            del guesser.shown[next(iter(guesser.shown))]
        guesser.due = max(guesser.due, now) + PAUSE
        return guesser.due - now - FREE * PAUSE


def _address(scope: Mapping[str, Any]) -> str:
    """Empty for a unix socket."""
    return (scope.get("client") or ("",))[0] or ""
