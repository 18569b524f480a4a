"""What the journal says about the parts of an agent or a program: its scopes, open or ended; the rows that it adds to
its conversation and to other logs; the files that it puts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Literal, NamedTuple, TypeVar

from msgspec import Raw, Struct
from msgspec.structs import replace

from ..journal import (
    NOTHING,
    Count,
    Doubt,
    Key,
    Line,
    PartialPromoted,
    Resolved,
    SavedFile,
    StepCompleted,
    StepFailed,
    StepStarted,
)

T = TypeVar("T")

NOT_KEPT = "it is not kept"
Unkept = Annotated[T, NOT_KEPT]
"""A checkpoint leaves a field of this type out; it has its default when it is read."""

STUCK_AFTER = 3
"""After so many failures of an item, or crashes with nothing new on record between them, the run is paused as stuck."""


class EarlierAnswer(Struct, frozen=True, omit_defaults=True):
    """A person's answer about a call that an earlier attempt may have made with other arguments."""

    call: str  # its arguments, for people
    outcome: Literal["done", "not_done", "new"]
    other: Key | None = None  # the earlier call that is the same action; None: it is a new one
    result: Raw = NOTHING
    blob: str = ""


class Scope(Struct, omit_defaults=True):
    """A scope that has begun and not committed."""

    title: str = ""
    done: dict[Key, StepCompleted] = {}
    started: dict[Key, StepStarted] = {}  # effects without an outcome
    failed: dict[Key, StepFailed] = {}  # calls that have failed for good, and did not end their scope
    promoted: dict[Key, list[PartialPromoted]] = {}
    progress: dict[Key, Raw] = {}
    numbers: dict[Key, int] = {}  # `no` of every call ever recorded here
    settled: set[Key] = set()  # effects of which, by a person's word, no call is expected, or which may be done
    answers: dict[Key, EarlierAnswer] = {}  # by the call in question, until that call is made
    when: dict[Key, str] = {}  # of effects: when they were recorded as done
    again: dict[Key, int] = {}  # how often a person has asked to repeat an effect
    last_number: int = 0
    failures: int = 0  # since it began, or since a person has changed something about it
    crashes: int = 0  # of its process, in a row, without a record that it had come further (agent_state.py)
    retries: Unkept[dict[Key, Line]] = {}  # calls that wait to be tried again, each with its `step.retry`
    messages: Unkept[list[Line]] = []  # not yet committed: they count for nothing unless their scope commits with them
    uncalled: list[Key] = []  # of its effects, those that were not called again before the agent returned
    spent: dict[str, int] = {}  # how often each cost was recorded outside its steps, by `Spent.kind`

    def knows(self, key: Key) -> bool:
        """Whether there is a valid record of this call."""
        return key in self.done or key in self.started or key in self.promoted

    @property
    def finished(self) -> int:
        """How many results it has."""
        return len(self.done)

    def newest(self, most: int) -> Iterator[StepCompleted]:
        """The last results, newest first."""
        return islice(reversed(self.done.values()), most)

    def ended(self, effects: dict[Key, StepCompleted]) -> Past:
        """The part of it that later starts need, with these of its effects."""
        return Past(self.title, self.last_number, effects, self.settled, self.when, self.again)

    def moved(self, key: str) -> Scope:
        """This scope under the item's new id."""
        return replace(
            self,
            done={call: replace(step, scope=key) for call, step in self.done.items()},
            started={call: replace(step, scope=key) for call, step in self.started.items()},
        )

    def run_again(self, calls: Iterable[Key]) -> None:
        """The exceptions of these calls are not raised again."""
        for key in calls:
            self.failed.pop(key, None)

    def take_answer(self, key: Key) -> None:
        """The call that a person was asked about is made, so the earlier call that is the same action is resolved. Not
        earlier: another call in its place must be asked about, too."""
        answer = self.answers.pop(key, None)
        if answer is not None and answer.outcome != "done":
            self.settled.add(key)  # it may be done, also if this start of it comes to nothing
        if answer is None or answer.other is None:
            return
        self.settled.add(answer.other)
        self.started.pop(answer.other, None)
        self.answers = {call: other for call, other in self.answers.items() if other.other != answer.other}


class Past(Struct, omit_defaults=True):
    """The part of an ended scope that later starts need, in case a person wants it done again: its effects, which are
    not repeated."""

    title: str
    last_number: int
    done: dict[Key, StepCompleted] = {}
    settled: set[Key] = set()
    when: dict[Key, str] = {}
    again: dict[Key, int] = {}
    uncalled: list[Key] = []  # effects that its last attempt has not called

    def opened(self, title: str) -> Scope:
        """The scope, when it begins again."""
        return Scope(
            title=title,
            done=dict(self.done),
            settled=set(self.settled),
            when=dict(self.when),
            again=dict(self.again),
            last_number=self.last_number,
            numbers={key: record.no for key, record in self.done.items()},
        )


def is_done_again(record: StepCompleted) -> bool:
    """Whether this is an effect that can be done again. A person's answer can't."""
    return record.effect and record.how != "answered"


def forget_effects(scope: Scope | Past) -> None:
    """Let the effects that were done be done again, under new keys."""
    for key in [key for key, record in scope.done.items() if is_done_again(record)]:
        del scope.done[key]
        scope.when.pop(key, None)
        scope.again[key] = scope.again.get(key, 0) + 1


def answer_of(scope: Scope, doubt: Doubt, record: Resolved) -> EarlierAnswer:
    """`done` without a result means the result of the earlier call."""
    if record.outcome == "new":
        return EarlierAnswer(doubt.call, "new")
    other = record.other or (doubt.others[0] if len(doubt.others) == 1 else None)
    if other not in doubt.others:
        raise ValueError("it does not name the earlier call")
    result, blob = record.result, record.blob
    if record.outcome == "done" and not len(result) and not blob and (earlier := scope.done.get(other)):
        result, blob = earlier.result, earlier.blob
    return EarlierAnswer(doubt.call, "done" if record.outcome == "done" else "not_done", other, result, blob)


def is_of_item(scope: str) -> bool:
    """Whether it is the scope of an item of the plan: not of a task, a named one, or that of the agent's own calls."""
    return scope[:1] not in ("", "_")


def scope_of_task(id: str) -> str:
    """The scope of a task of the inbox, if it has its own."""
    return f"_inbox-{id}"


def is_of_task(scope: str) -> bool:
    """Whether it is the own scope of a task of the inbox. No named scope can have such a name."""
    return scope.startswith(scope_of_task(""))


Outcome = TypeVar("Outcome", StepCompleted, StepFailed)


def without_arguments(record: Outcome) -> Outcome:
    """The outcome of a call as a state has it: a scope may have thousands, and only people read the arguments."""
    return replace(record, arguments=NOTHING) if len(record.arguments) else record


def forget_leave(scopes: Iterable[Scope | Past]) -> None:
    """What a person has allowed to do may have been done since, by the lost owner of a restored run."""
    for scope in scopes:
        scope.settled &= scope.done.keys()


MESSAGES = "messages.jsonl"

FILES = "files/"
"""The folder of the files that a program puts."""


class MessagesAt(Struct, frozen=True):
    """The length of messages.jsonl: lines, bytes, and the CRC-32 of those bytes."""

    count: Count = 0
    bytes: Count = 0
    crc: str = "00000000"


class RowLog(Struct, kw_only=True):
    """Rows that were only added, each known by the seq of its record: a conversation, or a log."""

    messages: Count = 0
    messages_at: Unkept[MessagesAt] = MessagesAt()  # what its file should be without the new ones
    new_messages: Unkept[list[Line]] = []  # committed or edited since then, that is since the checkpoint this was read
    # from, or since the file was written
    left_out: Unkept[Count] = 0  # so many of the newest messages are not in the file, because a person has saved it
    appended: dict[str, Count] = {}  # by the key of an append, its last row


class LogPlace(NamedTuple):
    """A log, its file, and the name by which a run knows it: the path of its agent, and its own name."""

    key: str
    path: str
    log: RowLog


def log_key(agent: str, log: str) -> str:
    """`key` of a LogPlace."""
    return f"{agent}:{log}" if log else agent


class FileState(Struct, frozen=True):
    """A file in files/."""

    version: Count  # the seq of the record that has written it
    at: str
    content: SavedFile
