"""A call of a step or an effect, and the work of an item, as people are told of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from ..journal.records import NOTHING, Failure, Key, Line, OfCall, StepCompleted, StepFailed, StepRetry, StepStarted
from ..state import blobs
from .positions import names_of

CallState = Literal["completed", "failed", "begun", "in_doubt", "retrying", "asked"]
WorkState = Literal["open", "committed", "skipped", "dropped", "undone", "pruned"]

Place = tuple[str, str]
"""An agent and a scope."""


class Trouble(Struct, frozen=True, omit_defaults=True, gc=False):
    """An attempt of a call that has failed."""

    seq: int
    at: str
    attempt: int
    error: str
    wait: float | None = None  # seconds until it was tried again by itself


class Call(Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """A call of a step or an effect.

    `state`: "begun" is an effect without an outcome; "in_doubt" one about which a person is asked; "asked" a question
    (`run.ask`) without an answer. `how` says where a result is from, as in `step.completed`.
    """

    no: int  # its number in the scope
    step: str
    call: str = ""  # a preview of its arguments
    args: str = ""  # the hash of its arguments
    n: int = 0  # the number of equal calls before it
    effect: bool = False
    state: CallState = "completed"
    seq: int = 0  # the record of its outcome, or its newest record; 0: it is no longer kept
    at: str = ""
    how: str = ""
    ms: int = 0
    model: str = ""  # the fallback that answered
    prompts: dict[str, str] = {}  # the files of prompts/, each with the start of its SHA-256
    recorded: Raw = NOTHING  # the result as JSON
    result_in: str = ""  # the file that has a large result
    error: str = ""  # the exception that the agent got
    troubles: tuple[Trouble, ...] = ()

    @property
    def key(self) -> Key:
        """Equal in two runs for equal calls of equal scopes."""
        return self.step, self.args, self.n

    @property
    def result(self) -> Any:
        """The result as a JSON value; None for a large one."""
        return msgspec.json.decode(self.recorded) if len(self.recorded) else None


class Work(Struct, kw_only=True, omit_defaults=True):
    """What one item, or named scope, has done between its beginning and its end. The agent's own calls, outside of all
    scopes, are of the scope ""; it has no beginning and no end, and those that a return has undone are apart.

    `state`: "skipped" is a commit of a cancelled item; "dropped", a person has removed the item; "undone", a person has
    asked to do it again, or has gone back to before it. Of the calls of these two only effects still count. "pruned":
    it had ended before the first record that is kept, so its effects are all that is known of its calls.
    """

    agent: str = ""
    scope: str
    title: str = ""
    state: WorkState = "open"
    begun: int = 0  # the record; 0: it is no longer kept, or these are calls that a return has undone in a work
    begun_at: str = ""
    ended: int = 0
    ended_at: str = ""
    failures: int = 0  # how often its function has raised
    changes: int = 0  # of the state, when it committed
    outputs: tuple[str, ...] = ()
    calls: list[Call] = []

    @property
    def names(self) -> tuple[str, ...]:
        """How a person may name it: `^3` and `3-summarise-report-b`."""
        return names_of(self.agent, self.scope, self.title)

    @property
    def ms(self) -> int:
        return sum(call.ms for call in self.calls)


def call_of(record: OfCall, outcome: Line | None, troubles: Sequence[Line], *, is_asked_about: bool) -> Call:
    """The call whose newest record is `record`. `outcome` and `troubles`: the lines of its outcome and of its failed
    attempts, as far as they are known. `is_asked_about`: there is an open question about it."""
    newest = outcome or (troubles[-1] if troubles else None)
    seq, at = (newest.seq, newest.at) if newest else (0, "")
    tried = tuple(map(_trouble, troubles)) if troubles else ()
    if type(record) is StepCompleted:  # as most are
        return Call(
            no=record.no,
            step=record.step,
            call=record.call,
            args=record.args,
            n=record.n,
            effect=record.effect,
            seq=seq,
            at=at,
            how=record.how,
            ms=record.ms,
            model=record.model,
            prompts=record.prompts,
            recorded=record.result,
            result_in=f"{blobs.FOLDER}/{record.blob}" if record.blob else "",
            troubles=tried,
        )
    made = partial(
        Call,
        no=record.no,
        step=record.step,
        call=record.call,
        args=record.args,
        n=record.n,
        prompts=record.prompts,
        seq=seq,
        at=at,
        troubles=tried,
    )
    match record:
        case StepStarted():
            return made(effect=True, state="in_doubt" if is_asked_about else "begun")
        case StepFailed():
            return made(effect=record.effect, state="failed", ms=record.ms, error=_error(record.error))
        case StepRetry():
            return made(state="retrying")
        case _:
            return made(effect=True, state="asked")


def _trouble(line: Line) -> Trouble:
    record = line.record
    assert isinstance(record, StepRetry | StepFailed)
    wait = record.wait if isinstance(record, StepRetry) else None
    return Trouble(line.seq, line.at, record.attempt, _error(record.error), wait)


def _error(failure: Failure) -> str:
    return f"{failure.kind}: {failure.message}"
