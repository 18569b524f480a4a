"""What pause.yaml says, for whoever must hear signals meanwhile: a look over a network is taken aside.

On a disk each look is taken at once. Elsewhere it is a listing, so it is taken every few seconds in a thread of its
own, and one that hangs hinders nobody.
"""

from __future__ import annotations

import threading
import time

from ...workspace.errors import SatchelError
from ...workspace.pausefile import PATH as PAUSE
from ...workspace.store import Store, Version
from .pausefile import Pause, is_stopped, read_pause

EVERY = 4.0
"""Seconds between two looks over a network: an emergency stop is obeyed within 5."""


class Glance:
    """Of one workspace, from now on."""

    def __init__(self, store: Store):
        self._store = store
        self._seen: Version | None = store.version(PAUSE)
        self._looks_at = time.monotonic() + EVERY
        self._thread: threading.Thread | None = None
        self._last: Pause | None = None  # of the look before, over a network
        self._is_new = False  # and nobody has been told of it

    def is_emergency(self) -> bool:
        """An emergency stop was asked for since the last time that this was asked."""
        if not self._store.abilities.remote:
            version = self._store.version(PAUSE)
            if version == self._seen:
                return False
            self._seen = version
            pause = read_pause(self._store)
        else:
            self._look_aside()
            if not self._is_new:
                return False
            self._is_new, pause = False, self._last
        return pause is not None and pause.asks_for_emergency

    def is_stopped(self) -> bool:
        """Any pause.yaml forbids a start, unless it says `status: resume`. Over a network as of a few seconds ago: who
        is started looks by itself, too."""
        if not self._store.abilities.remote:
            return is_stopped(self._store)
        self._look_aside()
        return self._last is not None and not self._last.lets_go_on

    def _look_aside(self) -> None:
        is_looking = self._thread is not None and self._thread.is_alive()
        if is_looking or time.monotonic() < self._looks_at:
            return
        self._looks_at = time.monotonic() + EVERY
        self._thread = threading.Thread(target=self._look, name="satchel-glance", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        try:
            self._store.refresh()
            version = self._store.version(PAUSE)
            pause = read_pause(self._store) if version is not None else None
        except (SatchelError, OSError):
            return  # not to be reached now: nothing is known, and the child stops by itself if that lasts
        self._last = pause
        if version != self._seen:
            self._seen, self._is_new = version, True
