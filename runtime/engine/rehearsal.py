"""For a rehearsal: an agent is entered over a copy of its run. Recorded calls are answered, and nothing else is done.

A branch of the agent ends at the first call, question or resource that is not on record, and where a scope would begin.
It is held there until all other code of the agent waits, too. Then the run is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, NoReturn

from msgspec import Struct, field

from ...workspace.base import counted
from ...workspace.journal import StepCompleted
from ..live import StopRequests, Suspended, Suspension
from .open_scope import OpenCall, scope_of, waits

Kind = Literal["next", "again", "gone", "leaves", "asks", "fails"]
"""What a branch comes to: `next` is new work, as it would be without changed code."""

_LOOK = 0.02
_LOOKS = 8
"""So many looks in a row all code of the agent waits: then it waits for what it does not get."""


class RehearsalFinding(Struct, frozen=True):
    """One thing that the agent would do. `item` is the title of its scope."""

    kind: Kind
    words: str
    item: str = ""


class Rehearsal(Struct, eq=False):
    """What one rehearsal has found."""

    found: list[RehearsalFinding] = field(default_factory=list)

    async def at_call(self, call: OpenCall) -> NoReturn:
        """This call is not on record. It is judged when all others wait: another task may claim a record until then."""
        try:
            await self.hold(call.scope.context.stopping)
        finally:
            kind, words = _judged(call)
            self.found.append(RehearsalFinding(kind, words, call.scope.title))

    def at_return(self, open_items: int) -> None:
        """The agent has returned, and so many items of its plan are not done."""
        if open_items:
            self.found.append(
                RehearsalFinding("leaves", f"the agent returns, and leaves {counted(open_items, 'item')} open")
            )

    def at_uncalled(self, title: str, calls: Sequence[StepCompleted], *, asks: bool) -> None:
        """A scope would commit, or be left open, without these effects; with `asks` the run would ask about them."""
        for done in calls:
            words = f"{done.step}{done.call} was done and is not called any more"
            kind: Kind = "asks" if asks else "gone"
            self.found.append(RehearsalFinding(kind, words if asks else f"{words}; it stays done", title))

    async def at_scope(self, stopping: StopRequests, title: str) -> NoReturn:
        """A scope would begin that has not begun yet."""
        self.found.append(RehearsalFinding("next", f"{title!r} begins", title))
        await self.hold(stopping)

    def at_resource(self, stopping: StopRequests, name: str) -> NoReturn:
        """The agent needs a resource, and none is opened."""
        self.found.append(RehearsalFinding("next", f"it uses the resource {name!r}"))
        self._end(stopping)
        raise Suspended

    def failed(self, stopping: StopRequests, title: str, error: BaseException) -> NoReturn:
        """The code of a scope has raised."""
        self.found.append(RehearsalFinding("fails", f"{type(error).__name__}: {error}", title))
        self._end(stopping)
        raise Suspended from error

    async def hold(self, stopping: StopRequests) -> NoReturn:
        """Let this branch not continue, until all others wait and the run is over."""
        quiet = 0
        while not stopping.suspension:
            await asyncio.sleep(_LOOK)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            quiet = quiet + 1 if all(waits(task) for task in others if scope_of(task) is not None) else 0
            if quiet >= _LOOKS:
                self._end(stopping)
        raise Suspended

    @staticmethod
    def _end(stopping: StopRequests) -> None:
        if not stopping.suspension:
            stopping.suspend(Suspension("paused", "the rehearsal is over"))


def _judged(call: OpenCall) -> tuple[Kind, str]:
    """What it means that the agent makes this call."""
    scope, name = call.scope, call.step.name
    words = f"{name}{call.identity()['call']}"
    if call.key in scope.recorded.started:
        return "next", f"the effect {words} is in doubt, as it is now"
    if call.step.is_effect and (uncalled := scope.claims.uncalled):
        others = ", ".join(f"{done.step}{done.call}" for done in uncalled)
        return "asks", f"the effect {words} would begin, but {others} was done and is not called any more"
    names = (name, *call.step.former_names)
    known = [
        done
        for key, done in scope.recorded.done.items()
        if key[0] in names and not done.effect and scope.numbering.is_unclaimed(key)
    ]
    if known:
        return "again", f"the step {words} runs, in place of the recorded {known[0].step}{known[0].call}"
    left = [f"{done.step}{done.call}" for key, done in scope.recorded.done.items() if scope.numbering.is_unclaimed(key)]
    return "next", f"{words} comes next" + (f", before the recorded {left[0]}" if left else "")
