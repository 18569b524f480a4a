"""The recorded effects of a scope that an attempt has not called again. A new call may be one of them."""

from __future__ import annotations

from ...workspace.journal.records import Key
from ...workspace.state import Scope


class Claims:
    """The claims of one attempt. Effects that a person has resolved are not included."""

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
