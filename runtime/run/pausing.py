"""`run.pause`: an agent requests a pause of its run. For its scope it is a step whose result is that it has asked."""

from __future__ import annotations

import typing
from typing import Any

from msgspec import Raw

from ...workspace.base import Resume, UsageError, arguments
from ...workspace.journal.records import PauseRequested, StepCompleted
from ..engine import Call, OwnStep, ScopeRun


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
        assert isinstance(call, Call)
        context = call.scope.context
        context.journal.add(StepCompleted(**call.identity(), result=Raw(b"null")))
        context.stopping.pause(self._request)
        context.journal.flush()  # an earlier request for a pause counts, so nothing is flushed for this one
        context.pace.step_is_done(call.scope.agent.files)


def _wish(reason: str, resume: str) -> None:
    """What identifies a request."""
