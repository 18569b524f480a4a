"""A `serve` that a test turns itself, in its own process; only the runs are processes of their own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from satchel.results import ServeEvent
from satchel.runtime.supervision.run_server import Server
from satchel.runtime.supervision.sharing import Isolate, ShareLimits
from satchel.runtime.supervision.supervisor import Policy

from .supervised import PATIENCE

QUICK = Policy(first_delay=0.01, longest_delay=0.02, most_early=2)


class Served:
    """Events are (kind, folder's name, text)."""

    def __init__(
        self,
        root: Path,
        at_most: int = 2,
        policy: Policy = QUICK,
        drain_timeout: float | None = None,
        isolate: Isolate | None = None,
        share_limits: ShareLimits | None = None,
        group_limits: dict[str, int] | None = None,
    ):
        self.events: list[tuple[str, str, str]] = []
        self.server = Server(
            str(root),
            at_most,
            self._tell,
            drain_timeout,
            policy,
            isolate=isolate,
            share_limits=share_limits,
            group_limits=group_limits,
        )

    def _tell(self, event: ServeEvent) -> None:
        self.events.append((event.kind, os.path.basename(event.folder), event.text))

    @property
    def kinds(self) -> list[tuple[str, str]]:
        return [(kind, name) for kind, name, _ in self.events]

    def turn(self) -> None:
        """One turn, with a look at all folders."""
        self.server._lookout.looked_at = float("-inf")
        self.server.turn()
        if self.server._thread is not None:
            self.server._thread.join()  # the look
            self.server.turn()

    def until(self, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not is_so():
            assert time.monotonic() < end, f"it has never come to that: {self.events}"
            self.turn()
            time.sleep(0.01)

    def until_event(self, kind: str, name: str) -> str:
        """Turn until there is such an event that nobody has asked for yet. Returns its text."""
        self.until(lambda: (kind, name) in self.kinds)
        at = self.kinds.index((kind, name))
        text = self.events[at][2]
        del self.events[: at + 1]
        return text

    def end(self) -> None:
        """Stop what runs, by force."""
        self.server.ask(signal.SIGTERM)
        for supervisor in self.server.running:
            if supervisor._child is not None:
                supervisor._child.kill()
        self.until(lambda: not self.server.running)
        self.server.end()
