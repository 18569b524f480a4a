"""Values and calls in words and tones. A value: how long ago a time is, JSON in one line. A call of a step or an
effect, also as JSON: its name, its outcome, and all that its records tell of it. And the tone of what has no words of
its own: the page has a class for each tone; a terminal has a colour. A state has its tone in the table of statuses, and
a record in its words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import asdict

from ...workspace import journal
from ...workspace.base import counted, cut, duration, moment_of, one_line, since, usd, visible
from ...workspace.state import Tone, tone
from ...workspace.views import place_words

if TYPE_CHECKING:
    from ...workspace.history import Call, CallDetail, FailedAttempt, HumanAnswer
    from ...workspace.lifecycle import Leftover
    from ..status import Retrying

_UNITS = (("days", 86_400), ("h", 3_600), ("min", 60))

_SHOWN = 60  # columns of a value in a line

_json = json.JSONEncoder(ensure_ascii=False, default=str).encode  # `json.dumps` would make one for each value


def ago(at: str | datetime) -> str:
    """How long ago a time is, in one unit: `now`, `4 s ago`, `3 min ago`, `2 h ago`, `5 days ago`, `in 3 min`. Empty if
    it is no time."""
    if (then := moment_of(at) if isinstance(at, str) else at) is None:
        return ""
    seconds = (datetime.now(UTC) - then).total_seconds()
    if abs(seconds) < 2:
        return "now"
    text = _one_unit(abs(seconds))
    return f"{text} ago" if seconds > 0 else f"in {text}"


def _one_unit(seconds: float) -> str:
    for unit, length in _UNITS:
        if seconds >= length * (2 if unit == "days" else 1):
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


def json_line(value: Any, width: int = _SHOWN) -> str:
    """JSON in one line of at most `width` columns, safe to print. The cost does not depend on the size of the value."""
    return cut(visible("".join(_written(value, width))), width)


def _written(value: Any, width: int) -> Iterator[str]:
    """The beginning of the JSON of a value, with at least `width` characters if it has so many."""
    left = width + 1
    if isinstance(value, dict | list):
        is_list = isinstance(value, list)
        yield "[" if is_list else "{"
        parts = (("", each) for each in value) if isinstance(value, list) else value.items()
        for number, (key, each) in enumerate(parts):
            lead = ", " if number else ""
            lead += "" if is_list else f"{_json(key[:left])}: "
            inner = "".join(_written(each, left)) if left > 0 else ""
            yield lead + inner
            left -= len(lead) + len(inner)
            if left <= 0:
                return
        yield "]" if is_list else "}"
    else:
        yield _json(value[:left] if isinstance(value, str) else value)


# A call

_CALL = 160  # characters of a call
_ERROR = 200  # of why it is tried again

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


def call_name(call: _Named, width: int = _CALL) -> str:
    """`summarise("a.txt")`, in one line."""
    return one_line(f"{call.step}{call.call}", width)


def describe_call(call: Call, width: int = 0) -> str:
    """How a call has ended: its result, or why there is none."""
    if call.state == "completed":
        how = "" if call.how == "returned" else f" [{call.how}]"
        return (f"(large: {call.result_in})" if call.result_in else json_line(call.result, width or _SHOWN)) + how
    said = _OUTCOMES[call.state]
    return f"{said}: {one_line(call.error, _SHOWN)}" if call.error else said


_WAITS = 5
"""At most so many first tokens are told of a call, those of its last answers."""


def call_facts(found: CallDetail) -> list[tuple[str, str]]:
    """What is to be said of a call besides its arguments and its outcome: each with its name."""
    call = found.call
    item = place_words(found.agent, found.scope)
    spent = [counted(call.tokens, "token")] * bool(call.tokens) + [usd(call.usd)] * bool(call.usd)
    waits = [first for line in found.records if (first := getattr(line.record, "first_ms", 0))]
    facts = [
        ("in", f"{item}  {found.title}" if found.title else item),
        ("began", found.began),
        ("took", describe_ms(call.ms) if call.seq and call.state in ("completed", "failed") else ""),
        ("model", found.model),
        ("prompts", ", ".join(f"{name}@{version}" for name, version in call.prompts.items())),
        ("cost", ", ".join(spent)),
        ("first token", ", ".join(f"after {describe_ms(ms)}" for ms in waits[-_WAITS:])),
        ("known by", _KNOWN_BY.get(call.how, "")),
        ("item is", "" if found.item_state in ("open", "committed") else found.item_state),
    ]
    return [(name, text) for name, text in facts if text]


def describe_ms(ms: int) -> str:
    """`240 ms`, `3 min 5 s`."""
    return duration(ms / 1000) if ms >= 1000 else f"{ms} ms"


_KNOWN_BY = {
    "interrupted": "its function returned early, because a message had come",
    "restarted": "it began again, since it had not read the recovered text",
    "verified": "its `verify` has told that it happened",
    "resolved": "a person has told that it happened",
    "accepted": "the text that an earlier attempt had streamed was accepted",
    "edited": "a person has edited it",
    "answered": "a person has answered",
}


def attempt_line(trouble: FailedAttempt) -> str:
    """`attempt 2 failed, again after 4 s: Overloaded: 503`."""
    again = f", again after {duration(trouble.wait)}" if trouble.wait is not None else ""
    return f"attempt {trouble.attempt} failed{again}: {trouble.error}"


def answer_line(answer: HumanAnswer) -> str:
    """`approve by ada@laptop: we have the money`."""
    return f"{answer.said} by {answer.by}" + (f": {answer.note}" if answer.note else "")


def describe_retry(call: Retrying) -> str:
    """`ask("tides") has failed 2 times, again at ...: Overloaded: 503`, of a call that waits."""
    failures = f"has failed {counted(call.attempt, 'time')}"
    return f"{call_name(call)} {failures}, again at {since(call.again_at)}: {one_line(call.error, _ERROR)}"


def stream_name(stream: Leftover) -> str:
    """The call whose answer is streamed or was cut off; without one its file."""
    return call_name(stream.head) if stream.head else stream.path


def call_json(call: Call) -> dict[str, Any]:
    """All of a call. A large result is in the file `result_in`."""
    said = {name: each for name, each in asdict(call).items() if name not in ("recorded", "troubles")}
    troubles = {"troubles": [asdict(each) for each in call.troubles]} if call.troubles else {}
    result = {"result": call.result} if len(call.recorded) else {}
    return {name: each for name, each in said.items() if each or name in ("no", "n", "effect")} | troubles | result


def detail_json(found: CallDetail) -> dict[str, Any]:
    """All that is known of one call, with its records."""
    said = {name: each for name, each in asdict(found).items() if name not in ("call", "answers", "records", "result")}
    result = {"result": found.result} if found.call.state == "completed" else {}
    answers = [msgspec.to_builtins(each) for each in found.answers]
    lines = [msgspec.json.decode(journal.full(line)) for line in found.records]
    call = call_json(found.call) | {"state": found.call.state}
    return said | call | result | {"answers": answers, "records": lines}


# Tones

_COLOURS: dict[Tone, str] = {"active": "cyan", "good": "green", "bad": "red", "ask": "yellow", "hold": "magenta"}


def colour(tone: Tone | None) -> str | None:
    """The colour of a tone in a terminal."""
    return _COLOURS.get(tone) if tone else None


def state_colour(state: str) -> str | None:
    """The colour of the state of a run in a terminal."""
    return colour(tone(state))


REMARKS: dict[str, Tone] = {"found": "active", "edited": "hold", "done": "good", "wanted": "ask"}
"""For the remarks of an opening."""

CHANGES: dict[str, tuple[str, Tone]] = {"added": ("+", "good"), "removed": ("-", "bad"), "changed": ("~", "ask")}
"""The sign and the tone of a difference."""

CALLS: dict[str, Tone] = {"failed": "bad", "retrying": "ask", "in_doubt": "ask", "asked": "ask"}
"""For a call, by its state."""

SERVE_EVENTS: dict[str, Tone] = {
    "started": "active",
    "listening": "active",
    "crashed": "bad",
    "refused": "bad",
    "storage": "bad",
    "warned": "ask",
    "late": "ask",
    "outdated": "ask",
    "alone": "ask",
}
"""For the events of `satchel serve`. The others are states of a run."""

MARKS: dict[str, tuple[str, Tone | None]] = {
    "open": ("[ ]", None),
    "begun": ("[/]", "ask"),
    "done": ("[x]", "good"),
    "cancelled": ("[-]", "rest"),
}
"""The mark of an item of a plan, as in todo.md."""
