"""Which records `log` shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct, field

from ...schemas import nearest
from ...workspace.base import UsageError, arguments, time_text, times
from ...workspace.journal import records
from ...workspace.journal.records import AnyRecord, Line
from . import auditing

RECORD_TYPES = tuple(kind.__struct_config__.tag for kind in records.AnyRecord.__args__)
"""The types of records: `step.completed`, `edited`, ..."""

OWN = "."
"""Names the run's own agent."""

_SHOWN = 10


class Filter(Struct):
    """What a record must be. It notes the names in all records, for the error about a name that none of them has."""

    types: frozenset[str] | None
    names: dict[str, str]  # of an `item`, an `agent` and a `step`
    since: str  # UTC, in the form of a record's time
    audit: bool
    _seen: dict[str, set[str]] = field(default_factory=dict)

    def takes(self, line: Line) -> bool:
        record = line.record
        named = [self._is_of(name, wanted, record) for name, wanted in self.names.items()]
        return (
            all(named)
            and (self.types is None or record.__struct_config__.tag in self.types)
            and line.at >= self.since
            and (not self.audit or auditing.is_audited(record))
        )

    def check(self) -> None:
        """After all records: UsageError for a name that none of them has, if they have others."""
        for name, wanted in self.names.items():
            seen = self._seen.get(name)
            if seen and wanted not in seen:
                close = nearest(wanted, sorted(seen))
                known = ", ".join(sorted(seen)[:_SHOWN]) + (", ..." if len(seen) > _SHOWN else "")
                remedy = f"did you mean {close!r}?" if close else f"the records name {known}"
                raise UsageError(f"no record is of the {name} {wanted!r}", remedy=remedy)

    def _is_of(self, name: str, wanted: str, record: AnyRecord) -> bool:
        found = _NAMED[name](record)
        if not found:
            return False
        self._seen.setdefault(name, set()).add(found)
        return found == wanted or (name == "agent" and found.startswith(f"{wanted}/"))


def _agent_of(record: Any) -> str | None:
    agent: str | None = getattr(record, "agent", None)
    return OWN if agent == "" else agent


def _step_of(record: Any) -> str | None:
    step = getattr(record, "step", None)
    return step if isinstance(step, str) else step and step.key[0]  # an edit names the call


_NAMED = {"item": lambda record: getattr(record, "scope", None), "agent": _agent_of, "step": _step_of}
"""What a record says of each."""


def filter_of(
    item: str | None,
    type: str | None,
    agent: str | None,
    step: str | None,
    since: str | timedelta | datetime | None,
    audit: bool,
) -> Filter:
    """UsageError for a value that can't be one."""
    named = {"item": item, "agent": agent, "step": step}
    names = {name: arguments.text(name, value) for name, value in named.items() if value is not None}
    if "item" in names:
        names["item"] = names["item"].removeprefix("^")
    types = None if type is None else _types(type)
    return Filter(types, names, "" if since is None else time_text(_since(since)), audit)


def _types(pattern: str) -> frozenset[str]:
    found = frozenset(each for each in RECORD_TYPES if isinstance(pattern, str) and fnmatchcase(each, pattern))
    if not found:
        close = nearest(pattern, RECORD_TYPES) if isinstance(pattern, str) else None
        raise UsageError(
            f"there are no records of type {pattern!r}",
            remedy=f"did you mean {close!r}?" if close else f"there are {', '.join(RECORD_TYPES)}",
        )
    return found


def _since(since: str | timedelta | datetime) -> datetime:
    """So long ago, or a time: of a time of day the last one."""
    now = datetime.now(UTC)
    if isinstance(since, timedelta):
        return now - since
    if isinstance(since, datetime):
        return arguments.aware("log(since=)", since, "the records have times in UTC")
    return times.moment_before(arguments.text("since", since), now)
