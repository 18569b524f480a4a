"""Watch pause.yaml while signals are handled.

On a disk each look is made at once. Elsewhere it is a listing, made every few seconds in a thread of its own, so one
that hangs blocks nothing.
"""

from __future__ import annotations

import threading
import time

from ....workspace.base import SatchelError
from ....workspace.formats import PauseFile, pause_file
from ....workspace.inspect import lease
from ....workspace.store import Store, Version

EVERY = 4.0
"""Seconds between two looks over a network: an emergency stop is obeyed within 5."""


class Glance:
    """Watches the pause.yaml of one workspace, from now on. Parses it again only when its version has changed."""

    def __init__(self, store: Store):
        self._store = store
        self._version: Version | None = None  # of `file`
        self.file: PauseFile | None = None
        """What it says, as of the last look."""
        self._look_now()
        self._told: Version | None = self._version  # what was there before is for the child's start to judge
        self._looks_at = time.monotonic() + EVERY
        self._thread: threading.Thread | None = None

    def has_changed(self) -> bool:
        """Whether the file was changed, created or removed since the last call."""
        self._look()
        if self._version == self._told:
            return False
        self._told = self._version
        return True

    def is_stopped(self) -> bool:
        """Any pause.yaml forbids a start, unless it says `status: resume`. Over a network this is some seconds old, but
        each start looks again."""
        self._look()
        return self.file is not None and not self.file.lets_go_on

    def _look(self) -> None:
        if not self._store.abilities.remote:
            self._look_now()
            return
        is_looking = self._thread is not None and self._thread.is_alive()
        if is_looking or time.monotonic() < self._looks_at:
            return
        self._looks_at = time.monotonic() + EVERY
        self._thread = threading.Thread(target=self._look_aside, name="satchel-glance", daemon=True)
        self._thread.start()

    def _look_aside(self) -> None:
        try:
            self._store.refresh()
            self._look_now()
        except (SatchelError, OSError):
            return  # not to be reached now: nothing is known, and the child stops by itself if that lasts

    def _look_now(self) -> None:
        version = self._store.version(pause_file.PATH)
        if version != self._version:
            self.file = lease.read_pause(self._store) if version is not None else None
            self._version = version
