"""The points at which a run can crash, by name, and what its calls do before and after the crash."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ...workspace.journal.records import Key
from ...workspace.state import SLEEP
from ..engine import Call
from ..steps import Partial
from .crashing import Crashing


class Place(NamedTuple):
    """What identifies a call in its run."""

    agent: str
    scope: str
    key: Key


def place_of(call: Call) -> Place:
    return Place(call.scope.agent.path, call.scope.key, call.key)


class Probe:
    """Observes the processes of one run, and crashes the first of them at the point `at`. `points` are those that it
    came to before: each has a kind and a name, which is the same in each run of the same agent."""

    def __init__(self, at: str = ""):
        kind, _, number = at.partition(" ")
        self._at = at
        self.disk = Crashing(int(number) if kind == "record" and number.isdecimal() else None)
        self._points: list[tuple[str, str]] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self.returns: Counter[Place] = Counter()  # of effects
        self.idempotent: set[Place] = set()
        self.streamed: set[Place] = set()
        self.contradicted: dict[Place, str] = {}  # effects that had returned, although their `verify` raises NotDone

    @property
    def points(self) -> list[tuple[str, str]]:
        # No crash behind the last record: there the run is over.
        return [*(("record", f"record {number}") for number in range(1, self.disk.records)), *self._points]

    def wrote(self, call: Call, out: Partial) -> None:
        self.streamed.add(place_of(call))
        if self._is_here("token", f" of {call.words}"):
            out.file.write()  # so that all of it is found
            self.disk.has_crashed = True

    def returned(self, call: Call) -> None:
        place = place_of(call)
        self.returns[place] += 1
        if call.step.idempotent:
            self.idempotent.add(place)
        if self._is_here("return", f" of {call.words}"):
            self.disk.has_crashed = True

    def denied(self, call: Call) -> None:
        if self.returns[place_of(call)]:
            self.contradicted[place_of(call)] = call.words

    def waits(self, call: Call) -> None:
        if self._is_here("sleep" if call.key[0] == SLEEP else "question", ""):
            self.disk.has_crashed = True

    def _is_here(self, kind: str, of: str) -> bool:
        if self.disk.has_crashed:
            return False
        self._counts[kind, of] += 1
        name = f"{kind} {self._counts[kind, of]}{of}"
        self._points.append((kind, name))
        return name == self._at
