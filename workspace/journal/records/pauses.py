"""Records of a pause: asked for, too late, forced, in force, and over."""

from __future__ import annotations

from ...base import Mode, Resume
from .base import Failure, Record


class PauseRequested(Record, frozen=True, kw_only=True, tag="pause.requested"):
    """Somebody, or something, wants the run to stop. From here on nothing new is begun."""

    reason: str
    by: str
    mode: Mode = "drain"
    resume: Resume = "continue"
    until: str = ""  # when the pause is expected to be over: UTC, ISO 8601


class PauseLate(Record, frozen=True, kw_only=True, tag="pause.late"):
    """The run completed before it noticed that it was to stop. Nothing came of that wish."""

    reason: str
    by: str
    mode: Mode = "drain"


class Forced(Record, frozen=True, kw_only=True, tag="forced"):
    """The run was stopped without waiting any longer for what was under way."""

    under_way: tuple[str, ...] = ()  # in words
    waited: float = 0.0  # seconds


class Paused(Record, frozen=True, kw_only=True, tag="paused"):
    """The pause that was asked for is in force: nothing of the agent is at work."""

    forced: bool = False
    error: Failure | None = None


class Resumed(Record, frozen=True, kw_only=True, tag="resumed"):
    """A pause is over. `says` is what has changed meanwhile: drift, references, what was adjusted."""

    by: str
    instructions: str = ""
    seconds: float = 0.0  # how long the pause was
    checkpoint_age: float = 0.0  # seconds
    restart: bool = False  # what was cut off begins anew, without what it had come to
    says: tuple[str, ...] = ()
