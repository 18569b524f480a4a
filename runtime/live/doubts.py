"""Effects that earlier processes left in doubt, and questions about effects."""

from __future__ import annotations

from typing import Any, Literal

from msgspec.structs import replace

from ...workspace.inbound import find_question
from ...workspace.journal import Doubt, Key
from ...workspace.lifecycle import Workspace
from .reverify import Rechecks
from .stopping import StopRequests


class Doubts:
    """For one opening. `rechecks` are the effects to verify again, `cut_off_by` says why an effect began and did not
    end."""

    def __init__(
        self,
        workspace: Workspace,
        stopping: StopRequests,
        rechecks: Rechecks | None = None,
        cut_off_by: str = "a crash",
    ):
        self._workspace, self._stopping = workspace, stopping
        self.rechecks = rechecks or Rechecks(workspace.moment)
        self.cut_off_by = cut_off_by
        self.agents: list[str] = []  # sub-agents with effects that an earlier process left in doubt
        self._asks: set[str] = set()  # the questions that the agent has reached since it was entered

    def begin(self) -> None:
        """The agent is entered."""
        self._asks.clear()
        self.agents = [
            path
            for path, agent in self._workspace.moment.agents.items()
            if path and any(scope.started for scope in agent.scopes.values())
        ]

    def ask(
        self,
        identity: dict[str, Any],
        why: Literal["unknown_outcome", "unclaimed", "unreached", "uncalled", "lost"],
        cause: str = "",
        others: tuple[Key, ...] = (),
        needs_person: bool = False,
    ) -> None:
        """Ask about a recorded effect, unless the question is already there. From now on every call unwinds: a person
        is needed."""
        doubt = Doubt(**identity, id="", why=why, cause=cause, others=others, needs_person=needs_person)
        self._stopping.has_asked = True
        open_ones = self._workspace.moment.doubts.items()
        known = next((id for id, asked in open_ones if self._is_same_question(doubt, asked)), None)
        if known is None:
            known = self._workspace.desk.free_id("d")
            self._workspace.journal.add(replace(doubt, id=known))
            self._workspace.journal.flush()
            put_question(self._workspace, known)
        self._asks.add(known)
        self._stopping.wait_for_person()

    def _is_same_question(self, doubt: Doubt, asked: Doubt) -> bool:
        """Ask about one unclaimed call of an effect at a time, because the answer may resolve the others. A question
        that this attempt does not ask is over."""
        if (doubt.agent, doubt.scope, doubt.step) != (asked.agent, asked.scope, asked.step):
            return False
        if doubt.why == asked.why == "unclaimed":
            return asked.id in self._asks or (doubt.key, doubt.others) == (asked.key, asked.others)
        return doubt.key == asked.key


def put_question(workspace: Workspace, id: str) -> None:
    """Write the file of a recorded question."""
    question = find_question(workspace.moment, id)
    assert question is not None
    workspace.desk.write_question(question)
    for files in workspace.files.values():
        workspace.projector.want(files.state)
