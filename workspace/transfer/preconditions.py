"""Check before each change of a long transfer that earlier facts still hold.

A laptop may sleep between two changes, and another process may finish the transfer meanwhile, or bring the run back.
Changes in the moment between a look and a change are not excluded.
"""

from __future__ import annotations

from collections.abc import Callable

from ..base import LeaseHeld
from ..lifecycle import clock
from ..store import Store

_FRESH = 5.0  # seconds


class Still:
    """`look` raises if it no longer holds. It held when this was made."""

    def __init__(self, look: Callable[[], None]):
        self._look, self._seen = look, clock()

    def check(self) -> None:
        now = clock()
        if now - self._seen >= _FRESH:
            self._look()
            self._seen = now


def finished(store: Store, why: str) -> LeaseHeld:
    return LeaseHeld(
        "another process has continued this transfer",
        path=store.url,
        why=why,
        remedy="`satchel status` shows where the run is now",
    )
