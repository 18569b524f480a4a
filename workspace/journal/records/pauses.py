"""Records of a pause: requested, too late, forced, in force, and over."""

from __future__ import annotations

from ...base import Mode, Resume
from .base import Failure, Record


class PauseRequested(Record, frozen=True, kw_only=True, tag="pause.requested"):
    """A request to stop the run. From here on nothing new begins."""

    reason: str
    by: str
    mode: Mode = "drain"
    resume: Resume = "continue"
    until: str = ""  # when the pause is expected to be over: UTC, ISO 8601


class PauseLate(Record, frozen=True, kw_only=True, tag="pause.late"):
    """The run completed before it noticed the request to stop. Nothing else came of the request."""

    reason: str
    by: str
    mode: Mode = "drain"


class Forced(Record, frozen=True, kw_only=True, tag="forced"):
    """The stop does not wait any longer for running work."""

    under_way: tuple[str, ...] = ()  # in words
    waited: float = 0.0  # seconds


class Paused(Record, frozen=True, kw_only=True, tag="paused"):
    """The requested pause is in force: no code of the agent runs."""

    forced: bool = False
    error: Failure | None = None


class Resumed(Record, frozen=True, kw_only=True, tag="resumed"):
    """A pause is over. `says` is what has changed meanwhile: drift, references, adjustments."""

    by: str
    instructions: str = ""
    seconds: float = 0.0  # how long the pause was
    checkpoint_age: float = 0.0  # seconds
    restart: bool = False  # what was cut off starts from its beginning, without its progress
    says: tuple[str, ...] = ()
