"""The whole run as it was at one of its records."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from ...workspace.history import conversations, moment_at, plain, records_of, seq_of
from ...workspace.inspect import look_beside
from ...workspace.journal import records
from ...workspace.journal.records import Line
from ...workspace.state import ROOT, AgentMoment, Moment, Status
from ...workspace.views import MessageRow as Said
from ...workspace.views import folder_of, status_of
from ..status import LogRow, Place


class ShownAgent(Struct, frozen=True):
    """One agent of the tree at a record.

    `path` is "" for the root; `data` that of its state.json, as JSON values; `plan` the text of its todo.md; `open` the
    folders of the items and named scopes that had begun and not committed; `messages` its conversation, each with
    `seq`, `at`, `role` and `content`. None if that is no longer known.
    """

    path: str
    status: Status
    data: Any
    plan: str
    open: list[str]
    messages: list[dict[str, Any]] | None = None


class Message(Struct, frozen=True):
    """A message of the conversation of `agent`, as it is now: also as a person has changed it."""

    agent: str
    seq: int
    at: str
    role: str
    content: Any


class ShowResult(Struct, frozen=True):
    """A run at record `seq`, right after it.

    `record` is that record, `before` and `after` its neighbours; None if there is none, or if retention has removed it.
    `agents` has the whole tree, parents first. `newest` is the newest record that can be read, and `problem` says why
    later ones can't be.
    """

    url: str
    run_id: str
    seq: int
    newest: int
    record: LogRow | None
    before: LogRow | None
    after: LogRow | None
    agents: list[ShownAgent]
    moment: Moment
    problem: str = ""

    @property
    def status(self) -> Status:
        return self.moment.status


def show(place: Place, at: int | str) -> ShowResult:
    """The run at the position `at`."""
    found = records_of(place.store)
    seq = seq_of(place.store, at, found)
    moment = moment_at(place.store, seq, found)
    near = {line.seq: line for line in found.lines if abs(line.seq - seq) <= 1}
    row, before, after = (_row(near.get(each)) for each in (seq, seq - 1, seq + 1))
    said = conversations(place.store, moment)
    agents = [_shown(moment, agent, said.get(agent.path)) for agent in moment.agents.values()]
    problem = str(found.problem) if found.problem else ""
    newest = max(seq, found.last)
    return ShowResult(place.url, moment.run_id, seq, newest, row, before, after, agents, moment, problem)


def conversation(place: Place) -> list[Message]:
    """The conversations of all agents as they are now, in one. An agent's own order stays: what a person has inserted
    counts as said with what comes before it."""
    moment = look_beside(place.store).moment
    found = conversations(place.store, moment)
    return [*heapq.merge(*(_timed(path, rows) for path, rows in found.items()), key=lambda said: said.at)]


def _timed(path: str, rows: list[Said]) -> Iterator[Message]:
    at = ""
    for row in rows:
        at = max(at, row.at)
        yield Message(path, row.seq, at, **plain(row))


def _row(line: Line | None) -> LogRow | None:
    return LogRow(records.full(line), line) if line is not None else None


def _shown(moment: Moment, agent: AgentMoment, said: list[Said] | None) -> ShownAgent:
    opened = [folder_of(key, scope.title) for key, scope in agent.scopes.items() if key != ROOT]
    messages = None if said is None else [{"seq": each.seq, "at": each.at, **plain(each)} for each in said]
    return ShownAgent(agent.path, status_of(moment, agent), agent.data, agent.plan.text, opened, messages)
