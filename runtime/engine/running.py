"""The calls that run now, and the file that shows those that run for long (workspace/views/running_file.py)."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Protocol

from ...workspace.base import time_text
from ...workspace.lifecycle import Workspace
from ...workspace.views import running_file

LONG, LONG_REMOTELY = 1.0, 5.0
"""Seconds after which a call is shown, at the next look. There is a look in each such time while younger calls run, and
none while nothing runs. So in a bucket this costs at most one PUT in five seconds, and none if every call is short."""


class Call(Protocol):
    def identity(self) -> dict[str, Any]:
        """The fields of every record about this call. The preview of its arguments is redacted."""


class Running:
    """Of one opened workspace, on its loop. For a short call it costs an entry of a dict."""

    def __init__(self, workspace: Workspace):
        self._workspace, self._projector = workspace, workspace.projector
        self._long = LONG_REMOTELY if workspace.store.abilities.remote else LONG
        self._calls: dict[Call, float] = {}  # in their order, with the times they began, by time.monotonic
        self._shown_to = float("-inf")  # calls that began until then were long at the last look
        self._timer: asyncio.TimerHandle | None = None
        self._document = running_file.RunningDocument(workspace.store, workspace.behind, self._file)

    def begin(self, call: Call) -> None:
        self._calls[call] = time.monotonic()
        if self._timer is None:
            self._look_later()

    def end(self, call: Call) -> None:
        self._calls.pop(call, None)

    def stop(self) -> None:
        """No call runs any more. The file goes with the last writes of the stop."""
        self._calls.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._document.end():
            self._projector.want(self._document)

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._long, self._look)

    def _look(self) -> None:
        self._timer = None
        before, self._shown_to = self._shown_to, time.monotonic() - self._long
        if any(before < began <= self._shown_to for began in self._calls.values()):
            self._projector.want(self._document)
        if any(began > self._shown_to for began in self._calls.values()):
            self._look_later()

    def _file(self) -> running_file.RunningCalls | None:
        """Of the moment at which it is written: by then a call may have ended."""
        long = takewhile(lambda each: each[1] <= self._shown_to, self._calls.items())
        now, ticks, moment = datetime.now(UTC), time.monotonic(), self._workspace.moment
        calls = []
        for call, began in islice(long, running_file.MOST):
            known = call.identity()
            agent, since = known.get("agent", ""), time_text(now - timedelta(seconds=ticks - began))
            scope = moment.agents[agent].scopes.get(known["scope"])
            fields = {name: known[name] for name in ("scope", "no", "step", "args", "n", "call")}
            failures = scope.failures if scope else 0
            calls.append(running_file.RunningCall(agent=agent, since=since, failures=failures, **fields))
        if not calls:
            return None
        return running_file.RunningCalls(
            run_id=moment.run_id, epoch=self._workspace.journal.epoch, at=time_text(now), calls=calls
        )
