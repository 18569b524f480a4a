"""For a replay: a run that does one item, or named scope, of its own agent, does no effect, and stops."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from ...workspace.journal.records import PauseRequested
from .reverify import Place
from .stopping import StopRequests, Suspended


class ReplayTarget(Struct, eq=False):
    """The item, by its id; by its text if `key` is empty. Afterwards `end` says what has stopped the run: the item is
    done, it has come to an effect that is not on record, or the agent did not come to it. `called`: the recorded
    effects that the run has called again."""

    key: str
    title: str
    end: Literal["", "done", "effect", "missed"] = ""
    reason: str = ""
    called: set[Place] = field(default_factory=set)

    def is_it(self, key: str | None, title: str) -> bool:
        return key == self.key if self.key else title == self.title

    def done(self, stopping: StopRequests) -> None:
        self._end(stopping, "done", f"{self.title!r} is replayed")

    def before_effect(self, stopping: StopRequests, words: str) -> Suspended:
        """The exception to raise there: nothing outside changes in a replay."""
        self._end(stopping, "effect", f"a replay does no effect, and this one would begin: {words}")
        return Suspended()

    def missed(self, stopping: StopRequests, why: str) -> Suspended:
        """The exception to raise in place of other work."""
        self._end(stopping, "missed", f"the agent did not come to {self.title!r}: {why}")
        return Suspended()

    def _end(self, stopping: StopRequests, end: Literal["done", "effect", "missed"], reason: str) -> None:
        if not self.end:
            self.end, self.reason = end, reason
        stopping.pause(PauseRequested(reason=self.reason, by="satchel"))
