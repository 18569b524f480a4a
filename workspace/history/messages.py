"""The conversations of a run at any moment, which record said each message, and what two of them differ in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from ..base import SatchelError
from ..journal.records import Edited, Line, Message, ScopeCommitted
from ..state import Moment, json_patch
from ..store import Store
from ..views import Row, conversation
from .blame import MISFITS, Origin, Scopes, misfit

Conversations = dict[str, list[Row]]


class MessageChange(Struct, frozen=True):
    """A message of an agent's conversation that differs. `seq` is its number; `old` and `new` are its `role` and
    `content`, as JSON values."""

    agent: str
    seq: int
    kind: Literal["added", "removed", "changed"]
    old: dict[str, Any] | None = None
    new: dict[str, Any] | None = None


class SaidBy(NamedTuple):
    """A message, and the record that has said it, or changed it last."""

    row: Row
    origin: Origin


def conversations(store: Store, moment: Moment) -> Conversations:
    """By agent, the messages at a moment, oldest first. Without those that the journal no longer has."""
    if not any(agent.messages for agent in moment.agents.values()):
        return {path: [] for path in moment.agents}
    try:
        found = conversation.recorded(store, moment)
    except SatchelError:
        return {}
    return {path: rows[-1] for path, rows in found.items() if len(rows[-1]) == moment.agents[path].messages}


def plain(row: Row) -> dict[str, Any]:
    """What is said, as JSON values."""
    return {"role": row.role, "content": msgspec.json.decode(row.content)}


def message_changes(old: Conversations, new: Conversations) -> Iterator[MessageChange]:
    """From `old` to `new`, agent by agent. What both have at their beginning and their end does not differ, whatever
    its numbers; between, a message is known by its number. An agent that one of them lacks is left out."""
    for path in old.keys() & new.keys():
        was, now = _between([*map(_Said, old[path])], [*map(_Said, new[path])])
        before, after = {each.row.seq: each for each in was}, {each.row.seq for each in now}
        for each in was:
            if each.row.seq not in after:
                yield MessageChange(path, each.row.seq, "removed", each.said)
        for each in now:
            known = before.get(each.row.seq)
            if known is None:
                yield MessageChange(path, each.row.seq, "added", None, each.said)
            elif not known.is_same(each):
                yield MessageChange(path, each.row.seq, "changed", known.said, each.said)


class _Said:
    __slots__ = ("row", "said")

    def __init__(self, row: Row):
        self.row, self.said = row, plain(row)

    def is_same(self, other: _Said) -> bool:
        return json_patch.same(self.said, other.said)


def _between(old: Sequence[_Said], new: Sequence[_Said]) -> tuple[Sequence[_Said], Sequence[_Said]]:
    shortest = min(len(old), len(new))
    start = end = 0
    while start < shortest and old[start].is_same(new[start]):
        start += 1
    while end < shortest - start and old[-1 - end].is_same(new[-1 - end]):
        end += 1
    return old[start : len(old) - end], new[start : len(new) - end]


def message_origins(store: Store, start: Moment, now: Moment, lines: Sequence[Line]) -> dict[str, list[SaidBy]]:
    """The messages of each agent after `lines`, which lead from `start` to `now`. Damaged if a record does not fit the
    earlier ones."""
    scopes = Scopes(start)
    origins: dict[tuple[str, int], Origin] = {}
    waiting: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        record = line.record
        try:
            scopes.add(line)
        except MISFITS as error:
            raise misfit(line, error) from error
        if isinstance(record, Message):
            waiting.setdefault((record.agent, record.scope), []).append(line)
        elif isinstance(record, ScopeCommitted):
            for each in waiting.pop((record.agent, record.scope), ()):
                origins[record.agent, each.seq] = scopes.origin(line)
        elif isinstance(record, Edited):
            for edit in record.messages:
                origins[record.agent, edit.seq or line.seq] = scopes.origin(line)
    return {
        path: [SaidBy(row, origins.get((path, row.seq), Origin(seq=row.seq, at=row.at))) for row in rows]
        for path, rows in conversations(store, now).items()
    }
