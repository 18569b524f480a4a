"""The calls of one time that an item was done, with those of the sub-agents that it has started, and the same calls of
another time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.history import Call, Work, Worked, same_outcome
from ...workspace.journal.records import AgentBegun, Key, Line
from ...workspace.state import ROOT


class CallPair(Struct, frozen=True):
    """The n-th call of one name in both, or the equal call of an effect. `kept`: the fork knows this effect, so the
    replay did not do it again; it has called it, or has stopped before that."""

    agent: str
    old: Call | None
    new: Call | None
    is_same: bool
    kept: bool


class Time:
    """`work`, one time that an item was done. `parts`: what the item has done itself, and what its sub-agents have done
    for it, also if it was undone later."""

    def __init__(self, found: Worked, lines: Sequence[Line], work: Work):
        self.work, self.lines, self.last = work, lines, work.ended or found.moment.seq
        self._spawned: dict[str, list[Line]] = {}
        for line in lines:
            if isinstance(line.record, AgentBegun) and "/" not in line.record.agent:
                self._spawned.setdefault(line.record.agent, []).append(line)
        self.parts = [work, *self._of_sub_agents(found)]

    def _of_sub_agents(self, found: Worked) -> Iterator[Work]:
        for each in found.work:
            if each.state == "undone" and each.scope == ROOT and self.work.state != "undone":
                continue  # a return has undone these calls, and not this time: it has made them again
            if each.agent and each.scope == ROOT:  # one for all times that the sub-agent was started
                known = (call for call in each.calls if call.seq or call.effect)
                yield replace(each, calls=[call for call in known if self._has_started(each.agent, call.seq)])
            elif each.agent and each.begun and self._has_started(each.agent, each.begun):
                yield each

    def has(self, agent: str, scope: str, seq: int) -> bool:
        """Whether record `seq`, of a scope, belongs to it."""
        return (
            self._has_started(agent, seq) if agent else scope == self.work.scope and self.work.begun <= seq <= self.last
        )

    def _has_started(self, agent: str, seq: int) -> bool:
        """Whether a sub-agent has worked for this item at record `seq`; at 0 of an effect that a fork knows, at all."""
        spawned = self._spawned.get(agent.partition("/")[0], ())
        if not seq:
            return any(self._is_ours(line) for line in spawned)
        newest = next((line for line in reversed(spawned) if line.seq <= seq), None)
        return newest is not None and self._is_ours(newest) and seq <= self.last

    def _is_ours(self, line: Line) -> bool:
        assert isinstance(line.record, AgentBegun)
        return line.record.scope == self.work.scope and self.work.begun <= line.seq <= self.last

    @property
    def calls(self) -> list[Call]:
        return [call for part in self.parts for call in part.calls]

    @property
    def by_step(self) -> dict[_Step, list[_Made]]:
        """In the order in which their scopes began."""
        found: dict[_Step, list[_Made]] = {}
        for part in self.parts:
            for call in part.calls:
                found.setdefault(_step(part, call), []).append(_Made(part, call))
        return found


class _Made(NamedTuple):
    """A call, and the part that it is in."""

    part: Work
    call: Call

    @property
    def is_known(self) -> bool:
        """An effect that a fork has brought along."""
        return self.call.effect and not self.call.seq

    @property
    def is_of_this_time(self) -> bool:
        """False for an effect of an earlier time; whether it was called again is not on record."""
        return not self.call.effect or self.call.seq >= self.part.begun


_Step = tuple[str, str, str]
"""An agent, one of its items by its text, empty for the item itself, and the name of a step. In a fork, the item of a
sub-agent may have another id, because the effects of the first one belong to that."""


def _step(part: Work, call: Call) -> _Step:
    title = part.scope if part.scope.startswith("_") else part.title
    return part.agent, title if part.agent else "", call.step


def pairs(
    old: Time, new: Time | None, called: Collection[tuple[str, str, Key]], *, is_finished: bool
) -> Iterator[CallPair]:
    """In the order of the first time. What only one of them has done is paired with nothing. `called`: the known
    effects that the replay has called."""
    first, second = old.by_step, new.by_step if new else {}
    for step in dict.fromkeys((*first, *second)):
        made = second.get(step, ())
        known = {each.call.key: each for each in made if each.is_known}
        is_called = {key: (each.part.agent, each.part.scope, key) in called for key, each in known.items()}
        others = []
        for each in first.get(step, ()):
            again = known.pop(each.call.key, None) if each.call.effect else None
            if again is None:
                others.append(each.call)
            elif is_called[each.call.key]:
                yield CallPair(step[0], each.call, again.call, same_outcome(each.call, again.call), True)
            else:
                kept = not is_finished or not each.is_of_this_time
                yield CallPair(step[0], each.call, None, kept, kept)
        for one, other in zip_longest(others, (each.call for each in made if not each.is_known)):
            is_same = one is not None and other is not None and same_outcome(one, other)
            yield CallPair(step[0], one, other, is_same, False)
        for key, each in known.items():
            if is_called[key]:
                yield CallPair(step[0], None, each.call, False, True)
