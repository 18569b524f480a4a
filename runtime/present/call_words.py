"""A call of a step or an effect in words: its name with its arguments, its outcome, and when it is tried again."""

from __future__ import annotations

from typing import Protocol

from ...workspace.base import counted, one_line, since
from ...workspace.history import Call
from ...workspace.lifecycle import Leftover
from .value_words import json_line

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
