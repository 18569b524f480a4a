"""All errors in one tree. This module imports nothing of Satchel except the form of a problem.

SatchelError
├── UsageError         a call or a command that is not valid
│   ├── KeyReused      an idempotency key that was used for another content
│   └── NoWorkspace    there is no workspace, or no folder of workspaces
├── InvalidFile        a file that does not fit its format; lists every problem
├── NewerFormat        a newer Satchel has written it; not touched
├── Refused            a person's change of a readable file can't be accepted
├── Conflicting        a readable file conflicts with the run, and a person has to decide
├── Damaged            the journal or a checkpoint is broken where a crash can't have broken it
├── LeaseHeld          another process is running this workspace
├── DoesNotFit         a record contradicts earlier records; it was refused as a whole
├── StorageFailed      a write or a sync failed; nothing after it counts as done
├── NotSerializable    an argument, a result or the state is not JSON
├── AgentError         the agent broke a rule of the API (state changed outside a scope, a nested scope, ...)
└── NotDone            raised by users' effects and verifiers: the effect has certainly not happened
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...schemas import Problem


class SatchelError(Exception):
    """What failed, where, why, and what to do. One line for people; survives pickling.

    `what` is a clause ("can't read the journal"); `path` is relative to the workspace or as the user gave it.
    """

    def __init__(self, what: str, *, path: str | None = None, why: str | None = None, remedy: str | None = None):
        super().__init__(what)
        self.what, self.path, self.why, self.remedy = what, path, why, remedy

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        why = f": {self.why}" if self.why else ""
        remedy = f". {self.remedy[0].upper()}{self.remedy[1:]}" if self.remedy else ""
        return f"{where}{self.what}{why}{remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__.copy(), self.args)


def _rebuild(kind: type[SatchelError], facts: dict[str, Any], args: tuple[Any, ...]) -> SatchelError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(facts)
    return error


class UsageError(SatchelError):
    """A call or a command that is not valid: a wrong name, a missing argument, a contradiction."""


class KeyReused(UsageError):
    """An idempotency key was used before, for another content. Nothing was sent."""


class NoWorkspace(UsageError):
    """There is no workspace at this place, or no folder to look for workspaces in. Not one that has moved away."""


class InvalidFile(SatchelError):
    """A file does not fit its format. `problems` lists everything that was found, in the order of the file."""

    def __init__(self, path: str, problems: Sequence[Problem]):
        super().__init__("is not valid", path=path)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        remedy = [f"{self.remedy[0].upper()}{self.remedy[1:]}"] if self.remedy else []
        return "\n".join([*(f"{self.path}, {problem}" for problem in self.problems), *remedy])


class NewerFormat(SatchelError):
    """A newer Satchel has written the workspace. Nothing was touched."""


class Refused(SatchelError):
    """A person's change of a readable file can't be accepted. The person's version is kept."""


class Conflicting(SatchelError):
    """A readable file conflicts with the run. All versions are kept until a person decides."""


class Damaged(SatchelError):
    """The journal or a checkpoint is broken in a way that no crash explains."""


class DoesNotFit(SatchelError):
    """A record contradicts earlier records. It was refused as a whole: the run and its journal are unchanged."""


class LeaseHeld(SatchelError):
    """Another process is running this workspace, or has taken it over."""


class StorageFailed(SatchelError):
    """A write or a sync failed. Unacknowledged data may or may not be on the disk."""


class NotSerializable(SatchelError):
    """A value that must be recorded is not JSON. `what` names its place, such as `result.items[3].when`."""


class AgentError(SatchelError):
    """The agent broke a rule of the API."""


class NotDone(SatchelError):
    """Raise it from an effect, or from its `verify`, if the effect has certainly not happened."""

    def __init__(self, what: str = "the effect has not happened", **facts: Any):
        super().__init__(what, **facts)


class RecordedError(Exception):
    """The exception of a call in an earlier process, if one of its own class can't be made. It is also of the nearest
    base class, and has the same text."""

    def __str__(self) -> str:
        return str(self.__dict__.get("said", ""))

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordedError, self.args, self.__dict__  # its own class was made dynamically and can't be found


def taken_over(path: str, why: str) -> LeaseHeld:
    """The error for a process that had the workspace."""
    return LeaseHeld(
        "another process has taken over this run",
        path=path,
        why=why,
        remedy="see `satchel status`; nothing that was recorded is lost",
    )
