"""What the journal says of one scope of an agent: of an open one, and of one that has ended."""

from __future__ import annotations

from msgspec import Raw, Struct

from .packing import Unkept
from .record import NOTHING, Doubt, Key, Line, PartialPromoted, Resolved, StepCompleted, StepStarted


class Kept(Struct, frozen=True, omit_defaults=True):
    """A result: JSON, or the name of the blob that holds it. Of a scope also how many steps it took."""

    result: Raw = NOTHING
    blob: str = ""
    steps: int = 0


class Answer(Struct, frozen=True, omit_defaults=True):
    """A person's word on an effect that an earlier attempt may have done under other arguments."""

    key: Key  # the call that was asked about; the next attempt's arguments may differ again
    outcome: str
    result: Raw = NOTHING
    blob: str = ""


class Scope(Struct, omit_defaults=True):
    """A scope that has begun and not committed."""

    title: str = ""
    done: dict[Key, StepCompleted] = {}
    started: dict[Key, StepStarted] = {}  # effects without an outcome
    promoted: dict[Key, list[PartialPromoted]] = {}
    progress: dict[Key, Raw] = {}
    numbers: dict[Key, int] = {}  # `no` of every call ever recorded here
    settled: set[Key] = set()  # recorded effects that a person has matched with a later call
    answers: dict[str, Answer] = {}  # by effect, for the next call of it that has no record
    when: dict[Key, str] = {}  # of effects: when they were recorded as done
    again: dict[Key, int] = {}  # how often a person has asked for an effect to be done once more
    last_number: int = 0
    failures: int = 0  # since it began, or since a person has changed something about it
    messages: Unkept[list[Line]] = []  # not yet committed: they count for nothing unless their scope commits with them
    spent: dict[str, int] = {}  # how often what was spent outside its steps, as `Spent.kind` tells it

    def knows(self, key: Key) -> bool:
        """Whether there is a record of this call that counts."""
        return key in self.done or key in self.started or key in self.promoted


class Past(Struct, omit_defaults=True):
    """What stays of a scope that has ended, in case a person wants it done again: its effects, which are not."""

    title: str
    last_number: int
    done: dict[Key, StepCompleted] = {}
    settled: set[Key] = set()
    when: dict[Key, str] = {}
    again: dict[Key, int] = {}


def answer_of(scope: Scope, doubt: Doubt, record: Resolved) -> Answer:
    """`--done` without a result means: what the earlier call returned."""
    result, blob = record.result, record.blob
    if record.outcome == "done" and not len(result) and not blob:
        for earlier in (scope.done[key] for key in doubt.others if key in scope.done):
            result, blob = earlier.result, earlier.blob
            break
    return Answer(doubt.key, record.outcome, result, blob)
