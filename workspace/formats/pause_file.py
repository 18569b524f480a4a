"""The format of pause.yaml: a person's request to stop a run, and Satchel's report on the pause.

A person's comments, order and own keys are kept when Satchel changes the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct

from ...schemas import Problem, problems, short
from ..base import InvalidFile, Mode, Resume, UsageError, decode, lines, moment_after, time_text
from . import yamltext

PATH = "pause.yaml"
LIMIT = 64 << 10
FATE = "and was written again"
"""What happens to a file that can't be understood, after it was kept as rejected."""

_HEAD = """\
# This run stops or has stopped. To continue it, write `status: resume` below and save, or run `satchel resume`.
"""


class PauseFile(Struct, frozen=True):
    """The content of the file; None and empty where it says nothing."""

    status: Literal["requested", "draining", "paused", "resume"] | None = None
    reason: str = ""
    by: str = ""
    mode: Mode | None = None
    then: Literal["cancel"] | None = None  # it was to end for good when it was killed
    resume: Resume | None = None
    instructions: str = ""
    until: str = ""  # UTC, ISO 8601
    requested_at: str = ""  # of the pause that it describes, as Satchel has written it

    def is_of(self, lifted: str) -> bool:
        """Whether it is the file of this earlier request, the last pause that is over. Then it is no new request."""
        return bool(lifted) and self.requested_at == lifted

    @property
    def lasting_mode(self) -> Mode | None:
        """What is left of the request once the run has stopped."""
        return self.then or self.mode

    @property
    def lets_go_on(self) -> bool:
        """A person has written that the run may resume."""
        return self.status == "resume"

    @property
    def asks_for_emergency(self) -> bool:
        """The run must be killed, and has not stopped for that yet."""
        return self.mode == "emergency" and self.status not in ("paused", "resume")


def parse(data: bytes, saved: datetime | None = None) -> PauseFile:
    """The content of the file; an empty one is a request too. InvalidFile if it is not valid. `45m` and `22:30` count
    from the time it was `saved`, or now if that is not known: else such a time would never come."""
    document = yamltext.load(decode(data, PATH), PATH)
    value = document.value
    if found := problems("pause", value, place=document.place):
        raise InvalidFile(PATH, found)
    said = {key: each for key, each in (value or {}).items() if each is not None}
    until = ""
    if "expected_until" in said:
        try:
            until = time_text(moment_after(said["expected_until"], saved or datetime.now(UTC)))
        except UsageError as error:
            place = document.place(("expected_until",))
            raise InvalidFile(
                PATH, [Problem(place, short(said["expected_until"]), "a time", f"{error.remedy}")]
            ) from None
    return PauseFile(
        status=said.get("status"),
        reason=said.get("reason", "").strip(),
        by=said.get("by", "").strip(),
        mode=said.get("mode"),
        then=said.get("then"),
        resume=said.get("resume"),
        instructions=said.get("instructions", "").strip(),
        until=until,
        requested_at=said.get("requested_at", ""),
    )


def check_wish(url: str, **said: Any) -> None:
    """UsageError if a program gives a request with values that the file can't have: no start could read it, and the run
    would stay stopped. Unlike in the file, None is not allowed either."""
    for name, value in said.items():
        if why := _why_not(name, value):
            raise UsageError(f"a request to stop can't have the {name} {value!r}", path=url, why=why)


def _why_not(name: str, value: Any) -> str:
    if not isinstance(value, str):
        return "it is not text"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "it has half of a surrogate pair"
    found = problems("pause", {name: value})
    return f"expected {found[0].expected}" if found else ""


def understood(data: bytes) -> PauseFile:
    """The content for a process that must obey it at once. A file that `parse` refuses is a plain pause; it is an
    emergency stop if it says so, or a line of it does: a typing error elsewhere must not keep the run alive."""
    try:
        return parse(data)
    except InvalidFile:
        text = data.decode(errors="replace")
        rows = (row for row in lines(text) if "emergency" in row and not row[0].isspace())
        is_emergency = any(_says_emergency(each) for each in (text, *rows))
        return PauseFile(mode="emergency" if is_emergency else None)


def _says_emergency(text: str) -> bool:
    try:
        value = yamltext.load(text, PATH).value
    except InvalidFile:
        return False
    return isinstance(value, dict) and value.get("mode") == "emergency"


def filled(data: bytes, facts: Mapping[str, Any]) -> bytes:
    """The file with `facts` set, and all else unchanged. None removes a fact. InvalidFile if the file can't be read."""
    text = decode(data, PATH)
    if not text.strip():
        text = _HEAD
    before = yamltext.load(text, PATH).value or {}
    for key, value in facts.items():
        if value is not None or (isinstance(before, dict) and before.get(key) is not None):
            text = yamltext.set_value(text, (key,), value, file=PATH)
    return text.encode()


def new(facts: Mapping[str, Any]) -> bytes:
    """A new file."""
    return (_HEAD + yamltext.dump({key: value for key, value in facts.items() if value is not None})).encode()
