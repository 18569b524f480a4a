"""`run.sleep`: a wait that survives the process. To its scope it is a step, whose result is that the time is over."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw

from ..workspace.agentmoment import SLEEP
from ..workspace.errors import UsageError
from ..workspace.record import StepProgress, time_text
from .calls import Step
from .context import Suspended, Suspension
from .scope import Call, ScopeRun

_IN_PROCESS = 10.0
"""Seconds that a process stays for."""


async def sleep(scope: ScopeRun, duration: float | timedelta | datetime) -> None:
    """Return when the time is over. A wait is known by its scope, its length or end, and how many equal ones came
    before it."""
    end = _end(duration)
    await scope.call(_Sleep(end), (str(duration),), {})


class _Sleep(Step[None]):
    def __init__(self, end: datetime):
        super().__init__(_wait, name=SLEEP, retry=None, on_partial="restart")
        self._end = end

    async def perform(self, call: Any) -> Any:
        """Wait for what is left of it: here if that is not long, else with no process."""
        assert isinstance(call, Call)
        scope, context = call.scope, call.scope.context
        saved = scope.recorded.progress.get(call.key)
        if saved is not None:
            self._end = datetime.fromisoformat(msgspec.json.decode(saved, type=str))
        else:
            value = Raw(msgspec.json.encode(time_text(self._end)))
            context.journal.add(StepProgress(**call.identity(), value=value))
            context.journal.flush()
        left = (self._end - datetime.now(UTC)).total_seconds()
        if left > _IN_PROCESS:
            context.suspend(Suspension("sleeping", "the agent sleeps", time_text(self._end)))
            raise Suspended
        await asyncio.sleep(max(0.0, left))
        scope.agent.check_going_on()
        return await scope.keep(call, b"null")


def _wait(duration: str) -> None:
    """What identifies a wait."""


def _end(duration: float | timedelta | datetime) -> datetime:
    if isinstance(duration, datetime):
        if duration.tzinfo is None:
            raise UsageError(
                f"run.sleep() got {duration} without a time zone", why="it may be resumed on another machine",
                remedy="use an aware datetime, as datetime.now(timezone.utc) gives",
            )  # fmt: skip
        return duration
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise UsageError("run.sleep() takes seconds, a timedelta or a datetime", why=f"got {duration!r}")
    return datetime.now(UTC) + timedelta(seconds=seconds)
