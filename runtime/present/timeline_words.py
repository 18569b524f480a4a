"""What a run has done in words: records for a timeline, each with the time that it, or the item that it ends, has
taken; and calls of steps and effects, with their outcomes.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import counted, moment_of, one_line, since
from ...workspace.history import Call
from ...workspace.journal import records
from ...workspace.journal.records import Line
from ...workspace.lifecycle import Leftover
from ...workspace.state import folder_of_agent
from ...workspace.views import RecordWords, describe_record, place_words
from .value_words import json_line


class TimelineEvent(Struct, frozen=True):
    """A record in words, without its time and its outputs, which a face shows apart: `took` in milliseconds (None: not
    known), and the `files` of the workspace that it is about."""

    seq: int
    at: str
    words: RecordWords
    took: int | None
    files: tuple[str, ...]


class Timeline:
    """Puts records into words in their order. The title of an ended item, and how long it took, are known if its
    beginning was among them."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str], tuple[str, str]] = {}  # the time and the title

    def of(self, line: Line) -> TimelineEvent:
        record, took, files = line.record, None, tuple[str, ...]()
        title = place = ""
        match record:
            case records.StepCompleted():
                took, record = record.ms, replace(record, ms=0)
            case records.ScopeBegun():
                self._begun.setdefault((record.agent, record.scope), (line.at, record.title))
            case records.ScopeFailed() | records.ScopeCommitted():
                began, title = self._begun.pop((record.agent, record.scope), ("", ""))
                place = place_words(record.agent, record.scope)
                first, last = moment_of(began), moment_of(line.at)
                took = round((last - first).total_seconds() * 1000) if first and last else None
        match record:
            case records.ScopeCommitted():
                files = tuple(folder_of_agent(record.agent) + f"outputs/{name}" for name in record.outputs)
                record = replace(record, outputs={})
            case records.PartialPromoted():
                files = (record.file,)
        words = describe_record(record)
        if title:
            words = words._replace(text=f"{place}  {title}{words.text.removeprefix(place)}")
        return TimelineEvent(line.seq, line.at, words, took, files)


_CALL = 160  # characters of a call
_ERROR = 200  # of why it is tried again
_SHORT = 60

_OUTCOMES = {
    "begun": "begun, without an outcome yet",
    "in_doubt": "in doubt: has it happened?",
    "asked": "asked",
    "retrying": "has failed, and is tried again",
    "failed": "failed",
}


class _Named(Protocol):
    @property
    def step(self) -> str: ...
    @property
    def call(self) -> str: ...


class _Retried(_Named, Protocol):
    @property
    def attempt(self) -> int: ...
    @property
    def error(self) -> str: ...
    @property
    def again_at(self) -> str: ...


def call_name(call: _Named, width: int = _CALL) -> str:
    """`summarise("a.txt")`, in one line."""
    return one_line(f"{call.step}{call.call}", width)


def describe_call(call: Call, width: int = 0) -> str:
    """How a call has ended: its result, or why there is none."""
    if call.state == "completed":
        how = "" if call.how == "returned" else f" [{call.how}]"
        return (f"(large: {call.result_in})" if call.result_in else json_line(call.result, width or _SHORT)) + how
    said = _OUTCOMES[call.state]
    return f"{said}: {one_line(call.error, _SHORT)}" if call.error else said


def describe_retry(call: _Retried) -> str:
    """`ask("tides") has failed 2 times, again at ...: Overloaded: 503`, of a call that waits."""
    failures = f"has failed {counted(call.attempt, 'time')}"
    return f"{call_name(call)} {failures}, again at {since(call.again_at)}: {one_line(call.error, _ERROR)}"


def stream_name(stream: Leftover) -> str:
    """The call whose answer is streamed or was cut off; without one its file."""
    return call_name(stream.head) if stream.head else stream.path
