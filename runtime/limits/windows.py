"""When a run pauses by itself, and when it is started: the cron expressions of workspace.yaml, in their time zones.

Pure: what time it is, is said by who asks. A time that the clocks leave out in spring is taken to be the first one
after the gap; of one that they have twice in autumn the first counts. Only an expression whose minute or hour begins
with `*` follows the time that really passes: it has none in the gap, and both of the doubled ones. So does Debian's
cron.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from ...schemas import Problem
from ...workspace.base import DEFINITION, InvalidFile, decode
from ...workspace.formats import Definition, Start, Window, yamltext
from ...workspace.state import Moment
from ...workspace.store import Store

_AROUND = timedelta(hours=3)
"""More than any clock was ever put back at once: what begins so much earlier misses none of a doubled hour."""

_SKEW = timedelta(minutes=1)

_CRON = "minute, hour, day, month and weekday, as in a crontab"


class Open(Struct, frozen=True):
    """A window that is open, or will be. Times in UTC."""

    window: Window
    begin: datetime
    end: datetime


def current(windows: Iterable[Window], now: datetime) -> Open | None:
    """The window that is open at `now`; of several the one that ends last."""
    found = [opened for opened in (_last(window, now) for window in windows) if opened and now < opened.end]
    return max(found, key=lambda opened: opened.end, default=None)


def next_opening(windows: Iterable[Window], now: datetime) -> Open | None:
    """The first window to open after `now`. None if none ever does."""
    found = [_opened(window, begin) for window in windows if (begin := _next(window, now))]
    return min(found, key=lambda opened: opened.begin, default=None)


def next_start(schedule: Iterable[Start], after: datetime) -> datetime | None:
    """The first time after `after` at which `satchel serve` is to start the run, in UTC. None if there is none."""
    return min((begin for start in schedule if (begin := _next(start, after))), default=None)


def starts(start: Start, after: datetime, now: datetime, at_most: int) -> list[datetime]:
    """The times after `after`, up to `now`, in UTC; if there are more than `at_most`, the last of them."""
    found: list[datetime] = []
    for begin in _times(start, now + _AROUND, reverse=True):
        if begin <= after or len(found) == at_most:
            break
        if begin <= now:
            found.append(begin)
    return found[::-1]


def lies_ahead(at: str, now: datetime) -> bool:
    """Whether a time on record lies in the future: the clock of whoever wrote it ran ahead, and nothing may wait for
    the time to come. Clocks of two machines may differ by a little."""
    try:
        return datetime.fromisoformat(at) > now + _SKEW
    except (ValueError, TypeError):  # no time at all
        return False


def ahead(moment: Moment, now: datetime) -> str:
    """A time on record that lies in the future, or nothing."""
    times = [moment.last_at, *(each.due for fired in moment.fired.values() for each in fired)]
    return next((at for at in times if lies_ahead(at, now)), "")


def said_ahead(at: str) -> str:
    """What to say of it."""
    return f"a record of {at} lies in the future: a clock ran ahead, or this one is slow. The schedule follows this one"


def is_overruled(opened: Open, moment: Moment) -> bool:
    """Whether somebody has gone on with the run in this very window. It is not paused for it again."""
    return bool(moment.lifted) and opened.begin <= datetime.fromisoformat(moment.lifted) < opened.end


def check(store: Store, definition: Definition) -> None:
    """InvalidFile if `windows:` or `schedule:` say what is no time. The schema sees the form only."""
    rules: tuple[tuple[str, Sequence[Window | Start]], ...] = (
        ("windows", definition.windows), ("schedule", definition.schedule),
    )  # fmt: skip
    wrong = [
        ((of, number, problem.place), problem)
        for of, each in rules for number, rule in enumerate(each) for problem in _problems(rule)
    ]  # fmt: skip
    names = [start.name for start in definition.schedule]
    taken = [number for number, name in enumerate(names) if name in names[:number]]
    remedy = "Give this one another `name:`"
    wrong += [
        (("schedule", number, "name"), Problem("", repr(names[number]), "a name of its own", remedy))
        for number in taken
    ]
    if wrong:
        document = yamltext.load(decode(store.read(DEFINITION).data, DEFINITION), DEFINITION)
        raise InvalidFile(DEFINITION, [problem._replace(place=document.place(where)) for where, problem in wrong])


def _problems(rule: Window | Start) -> Iterator[Problem]:
    """The place is the key."""
    # Imported here, and below: most runs have neither, and the two take 10 ms.
    from zoneinfo import ZoneInfo

    from cronsim import CronSim, CronSimError

    try:
        CronSim(rule.cron, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        said = str(error).lower().replace("bad ", "a bad ")
        remedy = "Write `0 22 * * fri` for every Friday at 22:00"
        yield Problem("cron", f"{rule.cron!r} with {said}", _CRON, remedy)
    try:
        ZoneInfo(rule.timezone)
    except (LookupError, ValueError, OSError):
        remedy = "Write a name like Europe/Berlin; if this machine has no time zones, `pip install tzdata`"
        yield Problem("timezone", repr(rule.timezone), "the name of a time zone", remedy)
    if isinstance(rule, Window) and not rule.duration:
        yield Problem("duration", "0", "a length of time", "Write how long it is, like 2h")


def _last(window: Window, now: datetime) -> Open | None:
    """The last opening at `now` or before."""
    for begin in _times(window, now + _AROUND, reverse=True):
        if begin <= now:
            return _opened(window, begin)
    return None


def _next(rule: Window | Start, after: datetime) -> datetime | None:
    return next((begin for begin in _times(rule, after - _AROUND) if begin > after), None)


def _times(rule: Window | Start, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
    """From `start` on, or back, in UTC."""
    from zoneinfo import ZoneInfo

    from cronsim import CronSim

    times = CronSim(rule.cron, start.astimezone(ZoneInfo(rule.timezone)), reverse=reverse)
    for time in times:
        yield time.astimezone(UTC)


def _opened(window: Window, begin: datetime) -> Open:
    return Open(window, begin, begin + timedelta(seconds=window.duration))
