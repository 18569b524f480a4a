"""Times and lengths of time as people write them: `90s`, `10m`, `22:30`, `2026-11-22 22:30`, or with a time zone."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from .errors import UsageError

_LENGTH = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


def seconds(written: str | float) -> float:
    """The length of time in seconds. UsageError if it is none."""
    match = _LENGTH.fullmatch(str(written).strip())
    if match is None:
        raise UsageError(f"{written!r} is not a length of time", remedy="write seconds, or a number with s, m, h or d")
    return float(match[1]) * _SECONDS[match[2]]


def moment_after(written: str, now: datetime) -> datetime:
    """The time that `written` means to somebody who writes it at `now`: a date and a time, a time of day (the next
    one), or a length of time from now. Without a zone it is this machine's. UsageError if it is none."""
    text = written.strip()
    if match := _CLOCK.fullmatch(text):
        local = now.astimezone()
        found = local.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
        return found if found > local else found + timedelta(days=1)
    if _LENGTH.fullmatch(text) and text[-1:].isalpha():
        return now + timedelta(seconds=seconds(text))
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise UsageError(
            f"{written!r} is not a time", remedy="write 22:30, 2026-11-22 22:30, 2026-11-22T21:30:00Z, or 45m from now"
        ) from None
