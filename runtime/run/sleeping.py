"""`run.sleep` and `run.pause`: waits that survive the process. For their scope they are steps: the result is that the
time is over, or that the agent has asked for the pause.
"""

from __future__ import annotations

import asyncio
import math
import typing
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ...workspace.base import Resume, UsageError, arguments, time_text
from ...workspace.formats import decoder
from ...workspace.journal.records import PauseRequested, StepCompleted, StepProgress
from ...workspace.state import SLEEP
from ..engine import OpenCall, ScopeRun, performing
from ..live import Suspended, Suspension
from ..steps import OwnStep

_IN_PROCESS = 10.0
"""Up to so many seconds the process waits itself."""


_CLOSE = 1.0
"""Two waits until a time are the same if their lengths differ by fewer seconds."""


class _Kept(Struct, omit_defaults=True):
    """The record of a wait: its progress, and its result once it is over."""

    until: str  # UTC, ISO 8601
    wait: str  # its identity
    seconds: float | None = None  # of a wait until a time: how far away it was at the beginning


_kept = decoder(_Kept)


async def sleep(scope: ScopeRun, duration: float | timedelta | datetime) -> None:
    """Return when the time is over. A wait is identified by its scope, its length or end, and the number of equal ones
    before it. A wait until a time is also the same if that time is as far away as before: `datetime.now() + hour` is
    another time at each start, and a run that waited for each would never end."""
    try:
        end = _end(duration)
        kept = _Kept(time_text(end), str(duration))
    except OverflowError:
        raise UsageError("run.sleep() got a time that is too far away", why=f"got {duration!r:.80}") from None
    if isinstance(duration, datetime):
        kept.seconds = (end - datetime.now(UTC)).total_seconds()
        kept.wait = _known(scope, kept.wait, kept.seconds)
    await scope.call(_Sleep(kept), (kept.wait,), {})


def _known(scope: ScopeRun, wait: str, seconds: float) -> str:
    """The identity of a wait that an earlier attempt began and this one has not called, if it is the same wait."""
    recorded = scope.recorded
    found = {key: value for key, value in recorded.progress.items() if key[0] == SLEEP}
    found |= {key: done.result for key, done in recorded.done.items() if key[0] == SLEEP}
    close = ""
    for key in sorted(filter(scope.numbering.is_unclaimed, found), key=recorded.numbers.__getitem__):
        with suppress(msgspec.ValidationError):  # a person has edited it
            kept: _Kept = _kept.decode(found[key])
            if kept.wait == wait:
                return wait
            if not close and kept.seconds is not None and abs(kept.seconds - seconds) < _CLOSE:
                close = kept.wait
    return close or wait


class _Sleep(OwnStep[..., Any]):
    def __init__(self, kept: _Kept):
        super().__init__(_wait, name=SLEEP, retry=None, on_partial="restart")
        self._kept = kept

    async def perform(self, call: Any) -> Any:
        """Wait for the rest: in this process if it is short, else without a process."""
        assert isinstance(call, OpenCall)
        scope, context = call.scope, call.scope.context
        saved = scope.recorded.progress.get(call.key)
        if saved is not None:
            self._kept = _kept.decode(saved)
        else:
            context.journal.add(StepProgress(**call.identity(), value=Raw(msgspec.json.encode(self._kept))))
            context.journal.flush()
        if context.observer:
            context.observer.waits(call)
        until = self._kept.until
        left = (datetime.fromisoformat(until) - datetime.now(UTC)).total_seconds()
        if left > _IN_PROCESS:
            context.stopping.suspend(Suspension("sleeping", "the agent sleeps", until))
            raise Suspended
        scope.work.rest(call)
        await asyncio.sleep(max(0.0, left))
        scope.check_going_on()
        return await performing.keep(call, msgspec.json.encode(self._kept))


def _wait(duration: str) -> Any:
    """What identifies a wait."""


def _end(duration: float | timedelta | datetime) -> datetime:
    if isinstance(duration, datetime):
        return arguments.aware("run.sleep()", duration, "the run may resume on another machine")
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise UsageError("run.sleep() takes seconds, a timedelta or a datetime", why=f"got {duration!r}")
    return datetime.now(UTC) + timedelta(seconds=max(0, seconds))  # less than none: the time is over


async def pause(scope: ScopeRun, reason: str, resume: Resume) -> None:
    """Ask once. A request is identified by its scope, its text, and the number of equal ones before it. So a resumed
    run does not stop there again."""
    if not isinstance(reason, str) or not reason.strip():
        raise UsageError("run.pause() takes a reason", why=f"got {reason!r}")
    arguments.text("the reason in run.pause()", reason)
    if resume not in (allowed := typing.get_args(Resume)):
        raise UsageError(f"run.pause() got resume={resume!r}", remedy=f"it is one of {', '.join(allowed)}")
    reason = reason.strip()
    await scope.call(_Pause(reason, resume), (reason, resume), {})
    scope.agent.check_going_on()


class _Pause(OwnStep[..., None]):
    def __init__(self, reason: str, resume: Resume):
        super().__init__(_wish, name="pause", retry=None, on_partial="restart")
        self._request = PauseRequested(reason=reason, by="the agent", resume=resume)

    async def perform(self, call: Any) -> Any:
        """The request and the record of this call are one group, so a crash can't separate them."""
        assert isinstance(call, OpenCall)
        context = call.scope.context
        context.journal.add(StepCompleted(**call.identity(), result=Raw(b"null")))
        context.stopping.pause(self._request)
        context.journal.flush()  # an earlier request for a pause counts, so nothing is flushed for this one
        context.pace.step_is_done(call.scope.agent.files)


def _wish(reason: str, resume: str) -> None:
    """What identifies a request."""
