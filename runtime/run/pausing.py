"""`run.pause`: an agent asks for a pause of its own run. To its scope that is a step; what it keeps is that it has
asked."""

from __future__ import annotations

import typing
from typing import Any

from msgspec import Raw

from ...workspace.base import Resume, UsageError
from ...workspace.journal.records import PauseRequested, StepCompleted
from ..engine import Call, ScopeRun
from ..steps import Step


async def pause(scope: ScopeRun, reason: str, resume: Resume) -> None:
    """Ask once. A wish is known by its scope, its words, and how many equal ones came before it, so that a run that has
    been gone on with does not stop there again."""
    if not isinstance(reason, str) or not reason.strip():
        raise UsageError("run.pause() takes a reason", why=f"got {reason!r}")
    if resume not in (allowed := typing.get_args(Resume)):
        raise UsageError(f"run.pause() got resume={resume!r}", remedy=f"it is one of {', '.join(allowed)}")
    reason = reason.strip()
    await scope.call(_Pause(reason, resume), (reason, resume), {})
    scope.agent.check_going_on()


class _Pause(Step[None]):
    def __init__(self, reason: str, resume: Resume):
        super().__init__(_wish, name="pause", retry=None, on_partial="restart")
        self._request = PauseRequested(reason=reason, by="the agent", resume=resume)

    async def perform(self, call: Any) -> Any:
        """The wish, and that it was made, are one group: after a crash neither is there without the other."""
        assert isinstance(call, Call)
        context = call.scope.context
        context.journal.add(StepCompleted(**call.identity(), result=Raw(b"null")))
        context.stopping.pause(self._request)
        context.journal.flush()  # a pause that was asked for before counts, and then nothing is flushed for this one
        context.pace.step_is_done(call.scope.agent.files)


def _wish(reason: str, resume: str) -> None:
    """What identifies a wish."""
