"""Which recorded effects of a scope an attempt at it has called again. One that was not may be a new call's."""

from __future__ import annotations

from ...workspace.journal.records import Key
from ...workspace.state import Scope


class Claims:
    """Of one attempt. Effects that a person has settled are not among them."""

    def __init__(self, recorded: Scope):
        self._outstanding: dict[str, dict[Key, None]] = {}  # by name, in the order they were recorded
        for key in (*recorded.started, *(key for key, record in recorded.done.items() if record.effect)):
            if key not in recorded.settled:
                self._outstanding.setdefault(key[0], {})[key] = None

    def claim(self, key: Key) -> None:
        """This attempt has called a recorded effect again."""
        self._outstanding.get(key[0], {}).pop(key, None)

    def unclaimed(self, name: str) -> tuple[Key, ...]:
        """Recorded calls of an effect that this attempt has not made again."""
        return tuple(self._outstanding.get(name, ()))

    def is_claimed(self, key: Key) -> bool:
        return key not in self._outstanding.get(key[0], ())
