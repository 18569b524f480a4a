"""The task that `satchel serve` puts into the inbox for a time of `schedule:`.

It is identified by the name of its schedule and its due time, and so is its file. The file is created exclusively, so
two processes that serve a workspace make one. The moment remembers the last ones that were taken (`Moment.fired`): one
that is made again, by a process that was frozen meanwhile, is no task any more.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

from ...formats import yamltext
from ...state import Moment

_FILE = re.compile(r"inbox/schedule-([a-z0-9][a-z0-9-]*)-([0-9]{8}T[0-9]{6}Z)\.yaml")


class Firing(NamedTuple):
    schedule: str
    due: str  # UTC, ISO 8601, `2026-11-23T07:30:00Z`

    @property
    def path(self) -> str:
        return f"inbox/schedule-{self.schedule}-{re.sub('[:-]', '', self.due)}.yaml"

    @property
    def data(self) -> bytes:
        return yamltext.dump({"kind": "schedule", "schedule": self.schedule, "due": self.due}).encode()


def is_one(content: object) -> bool:
    """Whether data that a program sends would be a time of a schedule. Only `satchel serve` and people may make one."""
    return isinstance(content, dict) and content.get("kind") == "schedule"


def firing_at(schedule: str, due: datetime) -> Firing:
    return Firing(schedule, f"{due.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")


def of_file(path: str) -> Firing | None:
    """The time of a schedule in the name of a file."""
    match = _FILE.fullmatch(path)
    try:
        return firing_at(match[1], datetime.fromisoformat(match[2])) if match else None
    except ValueError:
        return None


def was_taken(moment: Moment, firing: Firing) -> bool:
    return any(taken.due == firing.due for taken in moment.fired.get(firing.schedule, ()))
