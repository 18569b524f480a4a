"""The parts of a moment (run_state.py), except its agents and questions."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from ..base import Mode, Resume
from ..journal.records import PauseRequested

Status = Literal["new", "running", "draining", "waiting", "paused", "sleeping", "failed", "completed", "cancelled"]


class Usage(Struct):
    steps: int = 0
    items: int = 0
    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0  # of the processes that have ended

    def add_process(self, began: str, ended: str) -> None:
        """Count a process that has ended; `began` is empty if there was none. Times are UTC, ISO 8601."""
        if began:
            took = (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
            self.seconds = round(self.seconds + max(0.0, took), 3)


class Pause(Struct, omit_defaults=True):
    """A requested pause; it is in force once `paused_at` is set."""

    reason: str
    by: str
    requested_at: str
    mode: Mode = "drain"
    resume: Resume = "continue"
    until: str = ""
    paused_at: str = ""
    forced: bool = False
    file: str = ""  # the version of pause.yaml as Satchel left it, if it says no more than this

    @property
    def request(self) -> PauseRequested:
        """The request that it began with."""
        return PauseRequested(reason=self.reason, by=self.by, mode=self.mode, resume=self.resume, until=self.until)


class TaskFile(Struct, frozen=True):
    """The file of a finished task, and its folder below inbox/."""

    file: str
    sha256: str
    to: Literal["done", "moved"]


class Fired(Struct, frozen=True, omit_defaults=True):
    """A time of a schedule whose task was taken, or settled because the agent completed without opening its inbox.
    Times are UTC, ISO 8601."""

    due: str
    at: str  # when it was taken
    unopened: bool = False


FIRED = 128
"""How many times of each schedule are remembered: more than are made up for at once."""


def is_of_item(scope: str) -> bool:
    """Whether it is the scope of an item of the plan: not of a task, a named one, or that of the agent's own calls."""
    return scope[:1] not in ("", "_")


def scope_of_task(id: str) -> str:
    """The scope of a task of the inbox, if it has its own."""
    return f"_inbox-{id}"


def folder_of_agent(path: str) -> str:
    return "".join(f"agents/{name}/" for name in path.split("/")) if path else ""
