"""Text for people: a person's or a stranger's bytes as text that is safe to show, places in it, and facts in words.

And times and lengths of time as people write them: `90s`, `10m`, `22:30`, `2026-11-22 22:30`, or with a time zone.
"""

from __future__ import annotations

import codecs
import math
import re
import unicodedata
from datetime import UTC, datetime, timedelta

from ...schemas import Problem
from .errors import InvalidFile, SatchelError, UsageError

_BREAK = re.compile(r"\r\n|\r|\n")
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
"""Characters that could control a terminal or change the direction of text."""


def decode(data: bytes, path: str) -> str:
    """The text of a UTF-8 file, without a byte order mark. InvalidFile names the line of the first wrong byte."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InvalidFile(path, [Problem("line 1", "a file in UTF-16", "UTF-8", "Save the file as UTF-8")])
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        # Everything before the bad byte is good, so its place is counted in characters and not in bytes.
        where = place(data[: error.start].decode(), None)
        found = f"the byte 0x{data[error.start]:02x}, which is not UTF-8"
        raise InvalidFile(path, [Problem(where, found, "text in UTF-8", "Save the file as UTF-8")]) from None


def is_blank(data: bytes) -> bool:
    """Whether a file is empty: an editor has truncated it, or a power failure has left a hole."""
    return not data.strip(b" \t\r\n\0\xef\xbb\xbf")


def visible(text: str) -> str:
    """`text` with escapes in place of characters that could control a terminal or change the direction of text."""
    if text.isascii() and text.isprintable():  # as most are, and there may be thousands
        return text
    return UNSAFE.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def place(text: str, offset: int | None) -> str:
    """`line 4, column 7` of a character offset, both counted from 1; None is the end of the text."""
    before = text[:offset]
    breaks = list(_BREAK.finditer(before))
    start = breaks[-1].end() if breaks else 0
    return f"line {len(breaks) + 1}, column {len(before) - start + 1}"


def lines(text: str) -> list[str]:
    """The lines of a text without their ends. `str.splitlines` splits at ten more characters, which no editor does."""
    return _BREAK.split(text)


def one_line(text: str, width: int = 0) -> str:
    """`text` in a single line that is safe to print, cut to `width` columns if that is not 0."""
    line = visible(" ".join(text.split()))
    return cut(line, width) if width else line


def cut(line: str, width: int) -> str:
    """As much of `line` as fits into `width` columns of a terminal, with an ellipsis if that is not all."""
    if line.isascii():  # as most are, and there may be thousands
        return line if len(line) <= width else line[: width - 1].rstrip() + "…"
    if len(line) * 2 <= width or _columns(line) <= width:
        return line
    used, kept = 1, ""
    for character in line:
        used += _columns(character)
        if used > width:
            break
        kept += character
    return kept.rstrip() + "…"


def _columns(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def counted(count: int, noun: str) -> str:
    """`1 step`, `1,200 steps`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def size(count: int) -> str:
    """Bytes, as people say them."""
    if count < 1000:
        return counted(count, "byte")
    amount = float(count)
    units = iter(("kB", "MB", "GB", "TB"))
    while (amount := amount / 1000) >= 999.5:
        next(units)
    unit = next(units)
    return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.1f} {unit}"


def usd(amount: float) -> str:
    """`$12.30`, `$0.042`, `$0.00045`: to the cent, and below a dollar with the places that say something, so that costs
    of a fraction of a cent can be told apart and add up."""
    if amount >= 1 or amount <= 0:
        return f"${amount:,.2f}"
    places = min(9, max(4, 1 - math.floor(math.log10(amount))))
    whole, _, part = f"{amount:.{places}f}".partition(".")
    return f"${whole}.{part.rstrip('0'):0<2}"


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`, `3 days`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 2 * 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} days"


def since(at: str) -> str:
    """A journal's time with how long ago that is: `2026-11-21 23:10:04 UTC (3 min 5 s ago)`."""
    if (then := moment_of(at)) is None:
        return one_line(at, 40)
    ago = (datetime.now(UTC) - then).total_seconds()
    told = f" ({duration(ago)} ago)" if ago >= 0 else f" (in {duration(-ago)})"
    return f"{then:%Y-%m-%d %H:%M:%S} UTC{told}"


def in_force(mistake: SatchelError) -> str:
    """What to say about a mistake in workspace.yaml while a process runs the workspace."""
    return f"{mistake}; the run continues with the last valid version"


# Times

_LENGTH = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
_LONGEST = 36_525 * 86_400
"""Seconds of a hundred years. No calendar ends that soon."""


def seconds_of(written: str | float) -> float:
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


def time_text(at: datetime) -> str:
    """UTC, ISO 8601, milliseconds: the form in every file of a workspace."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def _moment(written: str, now: datetime, sign: int) -> datetime:
    text = written.strip()
    try:
        if match := _CLOCK.fullmatch(text):
            local = now.astimezone()
            found = local.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
            return found if (found - local) * sign > timedelta() else found + timedelta(days=sign)
        if _LENGTH.fullmatch(text) and text[-1:].isalpha():
            return now + timedelta(seconds=seconds_of(text)) * sign
        found = datetime.fromisoformat(text).astimezone()
        found.astimezone(UTC)  # the first and last day of the calendar are not days everywhere
        return found
    except (ValueError, OverflowError):
        raise UsageError(
            f"{written[:40]!r} is not a time",
            remedy=f"write 22:30, 2026-11-22 22:30, 2026-11-22T21:30:00Z, or 45m{' from now' if sign > 0 else ''}",
        ) from None
