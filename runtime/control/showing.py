"""The whole run as it was at one of its records."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ...workspace.history import moment_at, records_of, seq_of
from ...workspace.journal import records
from ...workspace.journal.records import Line
from ...workspace.state import ROOT, AgentMoment, Moment, Status
from ...workspace.views import folder_of, status_of
from .history import Row
from .place import Place


class ShownAgent(Struct, frozen=True):
    """One agent of the tree at a record.

    `path` is "" for the root; `data` that of its state.json, as JSON values; `plan` the text of its todo.md; `open` the
    folders of the items and named scopes that had begun and not committed.
    """

    path: str
    status: Status
    data: Any
    plan: str
    open: list[str]


class Shown(Struct, frozen=True):
    """A run at record `seq`, right after it.

    `record` is that record, `before` and `after` its neighbours; None if there is none, or if retention has removed it.
    `agents` has the whole tree, parents first. `newest` is the newest record that can be read, and `problem` says why
    later ones can't be.
    """

    url: str
    run_id: str
    seq: int
    newest: int
    record: Row | None
    before: Row | None
    after: Row | None
    agents: list[ShownAgent]
    moment: Moment
    problem: str = ""

    @property
    def status(self) -> Status:
        return self.moment.status


def show(place: Place, at: int | str) -> Shown:
    """The run at the position `at`."""
    found = records_of(place.store)
    seq = seq_of(place.store, at, found)
    moment = moment_at(place.store, seq, found)
    near = {line.seq: line for line in found.lines if abs(line.seq - seq) <= 1}
    row, before, after = (_row(near.get(each)) for each in (seq, seq - 1, seq + 1))
    agents = [_shown(moment, agent) for agent in moment.agents.values()]
    problem = str(found.problem) if found.problem else ""
    newest = max(seq, found.last)
    return Shown(place.url, moment.run_id, seq, newest, row, before, after, agents, moment, problem)


def _row(line: Line | None) -> Row | None:
    return Row(records.full(line), line) if line is not None else None


def _shown(moment: Moment, agent: AgentMoment) -> ShownAgent:
    opened = [folder_of(key, scope.title) for key, scope in agent.scopes.items() if key != ROOT]
    return ShownAgent(agent.path, status_of(moment, agent), agent.data, agent.plan.text, opened)
