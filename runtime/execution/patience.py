"""How long a stop waits for running work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...workspace.lifecycle import Workspace
from ...workspace.state import Pause
from ..engine import Stopping

_LISTED = 3


class Patience:
    """For one opening. `drain_timeout`, in seconds, replaces the one of workspace.yaml, and allows no extension. `say`
    is called with a kind and a line for people."""

    def __init__(
        self, workspace: Workspace, stopping: Stopping, say: Callable[[str, str], None], drain_timeout: float | None
    ):
        self._workspace, self._stopping, self._say = workspace, stopping, say
        self._told = drain_timeout
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, pause: Pause) -> None:
        """A pause was requested: report it, and set its time limit. Once, until it has ended."""
        if self._timer is None:
            under_way = self._stopping.drain.under_way
            after = f", after {_listed(under_way)}" if under_way else ""
            self._say("stopping", f"{pause.reason}, by {pause.by}{after}")
            self._wait()

    def end(self) -> None:
        """The next pause gets its own time limit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _seconds(self) -> float:
        return self._workspace.definition.drain_timeout if self._told is None else self._told

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._time_is_up)

    def _time_is_up(self) -> None:
        still = _listed(self._stopping.drain.under_way) or "the agent"
        if self._workspace.definition.drain_then == "force" or self._told is not None:
            self._say("forced", f"{still} took too long to stop; Satchel interrupts it")
            self._stopping.force()
        else:
            self._say("stopping", f"{still} is still running; waiting {self._seconds:.0f} s more")
            self._wait()


def _listed(under_way: tuple[str, ...]) -> str:
    """The first items of the running work."""
    more = len(under_way) - _LISTED
    return ", ".join(under_way[:_LISTED]) + (f" and {more} more" if more > 0 else "")
