"""The recorded effects of a scope that an attempt has not called again. A new call may be one of them."""

from __future__ import annotations

from ...workspace.journal.records import Key
from ...workspace.state import Scope, is_done_again


class Claims:
    """The claims of one attempt. Effects that a person has resolved are not included."""

    def __init__(self, recorded: Scope):
        done = (key for key, record in recorded.done.items() if is_done_again(record))
        self._outstanding = {key: None for key in (*recorded.started, *done) if key not in recorded.settled}

    def claim(self, key: Key) -> None:
        """This attempt has called a recorded effect again."""
        self._outstanding.pop(key, None)

    @property
    def unclaimed(self) -> tuple[Key, ...]:
        """Recorded effects that this attempt has not called again, in the order they were recorded."""
        return tuple(self._outstanding)

    def is_claimed(self, key: Key) -> bool:
        return key not in self._outstanding
