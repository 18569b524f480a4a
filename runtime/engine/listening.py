"""Whether a message waits in the inbox, for answers that are being streamed."""

from __future__ import annotations

import time

from ...workspace.people.inbox import Arrivals

_LOOK = 0.1
"""Seconds between two looks."""

_SHARE = 20
"""A look takes at most one part in so many of the time."""


class Listening:
    """Looks into the inbox as often as costs little. For one event loop."""

    def __init__(self, arrivals: Arrivals):
        """`arrivals` are those of `run.inbox`, so that `run.inbox.take` can take at once what was found here."""
        self._arrivals, self._due = arrivals, 0.0

    def hears(self) -> bool:
        """Whether a message waits. Without a look, so no, if the last one was a moment ago and found none."""
        began = time.monotonic()
        if began < self._due:
            return False
        found = self._arrivals.has_message()
        now = time.monotonic()
        self._due = 0.0 if found else now + max(_LOOK, _SHARE * (now - began))
        return found
