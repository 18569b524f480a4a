"""Obeys pause.yaml while the run is going: the run drains at once, or is killed. A pause that a person withdraws before
any code was stopped for it is over at once; else the run stops, and its process resumes it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from ...workspace.base import InvalidFile, SatchelError
from ...workspace.formats import PauseFile, pause_file
from ...workspace.inspect import pause_wish
from ...workspace.lifecycle import Wish, Workspace, withdrawing
from ...workspace.store import Version
from ...workspace.views import Settling
from ..engine import Stopping

SETTLE = 0.05
"""Seconds between two looks at a file that is being saved."""


class PauseWatch:
    """For one run, on its loop. `notice` gets a kind and a line for people."""

    def __init__(self, workspace: Workspace, stopping: Stopping, notice: Callable[[str, str], None]):
        self._workspace, self._stopping, self._notice = workspace, stopping, notice
        self._store, self._moment = workspace.store, workspace.moment
        self._settling = Settling(self._store)
        self._obeyed = ""  # `requested_at` of the pause that this file has requested
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
        self._obey(file, there)

    def _obey(self, file: PauseFile, version: Version | None) -> None:
        known = self._moment.pause
        if known is None and file.is_of(self._moment.lifted):
            return  # it is over, and is about to be removed
        if file.mode == "emergency" and file.status != "resume":
            os.kill(os.getpid(), signal.SIGKILL)  # what is not durable by now does not count
        by = self._store.trace(pause_file.PATH).by
        if file.status == "resume":
            self._withdraw(Wish(known, file, by, version))
        elif known is None or file.mode == "cancel" != known.mode:
            self._stopping.pause(pause_wish.request_of(file, by))
            self._obeyed = self._moment.pause.requested_at if known is None and self._moment.pause else ""

    def _withdraw(self, wanted: Wish) -> None:
        """A pause that Satchel itself has requested stays: the start that follows it checks its reason again."""
        pause = wanted.recorded
        if pause is not None and not (
            pause.mode == "drain" and pause.requested_at == self._obeyed and self._stopping.can_withdraw
        ):
            return
        try:
            withdrawing.withdraw(self._workspace, wanted)
        except SatchelError as error:
            self._stopping.fail(error)
            return
        if pause is not None:
            self._stopping.withdraw()
        self._notice("resumed", "the pause is withdrawn")
