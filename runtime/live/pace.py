"""When records become durable that no code waits for, and when the readable files show them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ...workspace.base import SatchelError
from ...workspace.lifecycle import Workspace
from ...workspace.views import Files

ALONE_AFTER = 0.05
"""Seconds after which a commit is written without other records."""

_FLUSH_SHARE = 20
_LONGEST_UNFLUSHED = 0.1
_UNFLUSHED_BYTES = 1 << 20


class Pace:
    """For one run, on its loop. `failed` is called with errors that no code waits for."""

    def __init__(self, workspace: Workspace, failed: Callable[[SatchelError], None]):
        self._workspace, self._failed = workspace, failed
        self._journal, self._projector = workspace.journal, workspace.projector
        self._alone_at = 0.0  # when the oldest waiting record is written alone, by the loop's clock; 0: none waits
        self._is_timed = False
        self._flush_due = 0.0
        self._flush_is_planned = False
        self._is_over = False

    def begin(self) -> None:
        """Give the projector the loop's timer for later writes, and let it write when the records that it shows are
        durable."""
        loop = asyncio.get_running_loop()

        def wake(delay: float) -> None:
            loop.call_later(delay, self._catch_up)

        self._is_over = False
        self._projector.wake = wake
        self._journal.on_taken = self._taken
        loop.call_soon(self._catch_up)

    def end(self) -> None:
        """The run is about to stop, and another thread may write that. Timers that are set do nothing any more."""
        self._projector.wake = self._journal.on_taken = None
        self._is_over = True

    def flush_later(self) -> None:
        """Write the new records with the next group, or alone in a moment.

        An agent that blocks the loop also blocks timers. So records that have waited that long are written at once.
        """
        if not self._journal.has_waiting:
            return
        loop = asyncio.get_running_loop()
        if self._alone_at:
            if loop.time() >= self._alone_at:
                self._journal.flush_soon()
            return
        self._alone_at = loop.time() + ALONE_AFTER
        if not self._is_timed:
            self._is_timed = True
            loop.call_at(self._alone_at, self._go_alone, loop)

    def _go_alone(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_timed = False
        if self._alone_at > loop.time():  # the timer's record was written with others, and this one has come since
            self._is_timed = True
            loop.call_at(self._alone_at, self._go_alone, loop)
        elif self._alone_at:
            self._quietly(self._journal.flush_soon)

    def _taken(self) -> None:
        """All new records are durable or being written."""
        self._alone_at = 0.0
        self._quietly(self._projector.look)

    def _catch_up(self) -> None:
        self._quietly(self.flush_later)  # records that wait, such as the beginning of an item, must be shown
        self._quietly(self._projector.catch_up)

    def _quietly(self, act: Callable[[], None]) -> None:
        if self._is_over:
            return
        try:
            act()
        except SatchelError as error:
            self._failed(error)

    def flush_soon(self, files: Files) -> None:
        """Make the new records durable within the next moments, with as few syncs as take a twentieth of the time.

        Every step calls this, not only a timer: steps that never wait would not let a timer run.
        """
        now = time.monotonic()
        if now >= self._flush_due or self._journal.waiting_bytes >= _UNFLUSHED_BYTES:
            self._journal.flush_soon()
            ended = time.monotonic()
            is_remote = self._workspace.store.abilities.remote
            share = _LONGEST_UNFLUSHED if is_remote else _FLUSH_SHARE * (ended - now)
            self._flush_due = ended + min(share, _LONGEST_UNFLUSHED)
            self.step_is_done(files)
        elif not self._flush_is_planned:
            self._flush_is_planned = True
            asyncio.get_running_loop().call_later(self._flush_due - now, self._flush_as_planned, files)

    def _flush_as_planned(self, files: Files) -> None:
        self._flush_is_planned = False
        self._quietly(self._journal.flush_soon)
        self._flush_due = time.monotonic() + _LONGEST_UNFLUSHED
        self._quietly(lambda: self.step_is_done(files))

    def step_is_done(self, files: Files) -> None:
        """Show its result."""
        self._projector.mark(files.steps)
        self._workspace.checkpoint_if_due()
