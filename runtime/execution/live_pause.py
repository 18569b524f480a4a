"""Obeys pause.yaml while the run is going: the run drains at once, or is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from ...workspace.base import InvalidFile
from ...workspace.formats import PauseFile, pause_file
from ...workspace.inspect import pause_wish
from ...workspace.state import Moment
from ...workspace.store import Store, Version
from ...workspace.views import Settling
from ..engine import Stopping

SETTLE = 0.05
"""Seconds between two looks at a file that is being saved."""


class PauseWatch:
    """For one run, on its loop. `notice` gets a kind and a line for people."""

    def __init__(self, store: Store, moment: Moment, stopping: Stopping, notice: Callable[[str, str], None]):
        self._store, self._moment, self._stopping, self._notice = store, moment, stopping, notice
        self._settling = Settling(store)
        self._seen: Version | None = None
        self.is_changing = False  # it is not completely saved yet

    async def look(self) -> None:
        """See what has come, once it is completely saved; an emergency at once."""
        self.is_changing = False
        there = self._store.version(pause_file.PATH)
        if there in (None, self._seen):
            return
        self._settling.stage(pause_file.PATH, there)
        await asyncio.sleep(SETTLE)
        stage = self._settling.stage(pause_file.PATH, there)
        try:
            content = self._store.read(pause_file.PATH, limit=pause_file.LIMIT)
            file = pause_file.parse(content.data)
            if not content.version == there == self._store.version(pause_file.PATH):
                stage = "changing"
        except FileNotFoundError:
            return
        except InvalidFile as error:
            if stage == "settled":
                self._notice("pause.yaml", f"{error}; the run is paused all the same")
            file = pause_wish.seen(self._store) or PauseFile()
        if stage != "settled" and not (file.mode == "emergency" and file.status != "resume"):
            self.is_changing = stage == "changing"
            return
        self._seen = there
        self._obey(file)

    def _obey(self, file: PauseFile) -> None:
        known = self._moment.pause
        if known is None and file.is_of(self._moment.lifted):
            return  # it is over, and is about to be removed
        if file.mode == "emergency" and file.status != "resume":
            os.kill(os.getpid(), signal.SIGKILL)  # what is not durable by now does not count
        if file.status != "resume" and (known is None or file.mode == "cancel" != known.mode):
            self._stopping.pause(pause_wish.request_of(file, self._store.trace(pause_file.PATH).by))
