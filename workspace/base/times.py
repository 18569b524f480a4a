"""Times and lengths of time as people write them: `90s`, `10m`, `22:30`, `2026-11-22 22:30`, or with a time zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from .errors import UsageError

_LENGTH = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


_LONGEST = 36_525 * 86_400
"""Seconds of a hundred years. No calendar ends that soon."""


def seconds(written: str | float) -> float:
    """The length of time in seconds. UsageError if it is none, or longer than a hundred years."""
    if isinstance(written, str):
        match = _LENGTH.fullmatch(written.strip())
        if match is None:
            raise UsageError(
                f"{written[:40]!r} is not a duration", remedy="write seconds, or a number with s, m, h or d"
            )
        found = float(match[1]) * _SECONDS[match[2]]
    else:
        found = written
    if not 0 <= found <= _LONGEST:
        raise UsageError("the duration is not between 0 and 100 years", remedy="write a shorter one")
    return float(found)


def moment_after(written: str, now: datetime) -> datetime:
    """The time that `written` means for a person who writes it at `now`: a date and a time, a time of day (the next
    one), or a length of time from now. Without a zone it is this machine's. UsageError if it is none."""
    return _moment(written, now, 1)


def moment_before(written: str, now: datetime) -> datetime:
    """A time in the past, written as for `moment_after`: the last time of day, or a length of time before now."""
    return _moment(written, now, -1)


def moment_of(text: str) -> datetime | None:
    """A time that a program has written, in UTC. Without a zone it is UTC. None if it is none, or one that no calendar
    has: a stranger may have written it."""
    try:
        then = datetime.fromisoformat(text)
        return then.replace(tzinfo=UTC) if then.tzinfo is None else then.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _moment(written: str, now: datetime, sign: int) -> datetime:
    text = written.strip()
    try:
        if match := _CLOCK.fullmatch(text):
            local = now.astimezone()
            found = local.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
            return found if (found - local) * sign > timedelta() else found + timedelta(days=sign)
        if _LENGTH.fullmatch(text) and text[-1:].isalpha():
            return now + timedelta(seconds=seconds(text)) * sign
        found = datetime.fromisoformat(text).astimezone()
        found.astimezone(UTC)  # the first and last day of the calendar are not days everywhere
        return found
    except (ValueError, OverflowError):
        raise UsageError(
            f"{written[:40]!r} is not a time",
            remedy=f"write 22:30, 2026-11-22 22:30, 2026-11-22T21:30:00Z, or 45m{' from now' if sign > 0 else ''}",
        ) from None


def time_text(at: datetime) -> str:
    """UTC, ISO 8601, milliseconds: the form in every file of a workspace."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
