"""When the next checkpoint is due, so that openings stay short and a return costs little."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from ..formats import Checkpoints
from ..journal.records import Occasion

REREAD_BYTES, FETCHED_BYTES = 1 << 20, 256 << 10
"""How much of the journal an opening may read because no checkpoint covers it: on a disk, and elsewhere."""

_RARELY = 16
"""So many times as much, if a person wants checkpoints only at milestones."""

_SHARE = 20


class Due(Struct):
    """What has come since the last checkpoint, for one opening.

    A checkpoint is due when the journal since the last one is larger than it, in a bucket half of it. So the cost is
    proportional. Checkpoints by time or by item take at most a twentieth of the time.
    """

    is_remote: bool
    size: int = 0  # of the last checkpoint, in bytes
    behind: int = 0  # bytes of the journal after it, from before this opening
    age: float = 0.0  # the age of these records in seconds
    clock: Callable[[], float] = time.monotonic
    _written: int = 0  # what the journal's writer had written at the last one
    _at: float = 0.0
    _rests_until: float = 0.0

    def __post_init__(self) -> None:
        self._at = self.clock() - self.age

    def why(self, wanted: Checkpoints, written: int, *, item_ended: bool = False) -> Occasion | None:
        """Why one is due after `written` bytes of this opening; None if it is not."""
        since = self.behind + written - self._written
        if since >= self._limit * (_RARELY if wanted.every == "milestone" else 1):
            return "growth"
        if isinstance(wanted.every, str) and not (wanted.every == "item" and item_ended):
            return None
        now = self.clock()
        if not since or now < self._rests_until:
            return None
        if isinstance(wanted.every, str):
            return "item"
        return "time" if now - self._at >= wanted.every else None

    @property
    def _limit(self) -> int:
        return max(FETCHED_BYTES, self.size // 2) if self.is_remote else max(REREAD_BYTES, self.size)

    def saved(self, size: int, written: int, began: float) -> None:
        """One was written, beginning at the clock's time `began`."""
        self.size, self.behind, self._written = size, 0, written
        self._at = self.clock()
        self._rests_until = self._at + _SHARE * (self._at - began)
