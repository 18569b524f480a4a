"""Slows down those who guess a token.

Who asks from one address may show a few wrong ones. Each further one is answered a second after the one before. While
many wait for that, nothing from this address is looked at, so that no more can be tried by asking at once. What was
shown before says nothing new, so a sender with an old token hinders no other one behind the same proxy.
"""

from __future__ import annotations

import hashlib
import time
from asyncio import sleep
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

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
