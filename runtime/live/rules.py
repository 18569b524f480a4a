"""The rules of workspace.yaml by which a run stops and starts by itself: the cron expressions of its windows and its
schedule, in their time zones, and what comes every so many seconds; and its budget, with what the run has used of it,
in numbers and in words.

Pure: the caller gives the time. A time that does not exist in spring counts as the first time after the gap. Of a time
that exists twice in autumn the first counts. Only an expression whose minute or hour begins with `*` follows real time:
it has no times in the gap, and both of the doubled ones. Debian's cron does the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Literal

from msgspec import Struct

from ...schemas import Problem
from ...workspace.base import DEFINITION, InvalidFile, Refused, UsageError, usd
from ...workspace.formats import Budget, Definition, ScheduledTask, Window
from ...workspace.formats import definition as definition_file
from ...workspace.state import Moment
from ...workspace.store import Store

_AROUND = timedelta(hours=3)
"""More than any clock was ever set back at once. A search that begins so much earlier misses nothing of a doubled
hour."""

_SKEW = timedelta(minutes=1)

_CRON = "minute, hour, day, month and weekday, as in a crontab"


class Open(Struct, frozen=True):
    """A window that is open, or will be. Times in UTC."""

    window: Window
    begin: datetime
    end: datetime


def current_window(windows: Iterable[Window], now: datetime) -> Open | None:
    """The window that is open at `now`; of several, the one that ends last."""
    found = [opened for opened in (_last(window, now) for window in windows) if opened and now < opened.end]
    return max(found, key=lambda opened: opened.end, default=None)


def next_opening(windows: Iterable[Window], now: datetime) -> Open | None:
    """The first window to open after `now`, or None."""
    found = [_opened(window, begin) for window in windows if (begin := _next(window, now))]
    return min(found, key=lambda opened: opened.begin, default=None)


def next_start(schedule: Iterable[ScheduledTask], after: datetime) -> datetime | None:
    """The first time after `after` at which `satchel serve` starts the run, in UTC, or None."""
    return min((begin for start in schedule if (begin := _next(start, after))), default=None)


def starts(start: ScheduledTask, after: datetime, now: datetime, at_most: int) -> list[datetime]:
    """The times after `after`, up to `now`, in UTC; at most the last `at_most`."""
    found: list[datetime] = []
    times = _multiples(start, now) if start.every else _times(start, now + _AROUND, reverse=True)
    for begin in times:
        if begin <= after or len(found) == at_most:
            break
        if begin <= now:
            found.append(begin)
    return found[::-1]


def _multiples(start: ScheduledTask, now: datetime) -> Iterator[datetime]:
    """The times of `every`, from the last one up to `now` backwards. All processes that serve a run agree on them."""
    last = now.timestamp() // start.every
    return (datetime.fromtimestamp(number * start.every, UTC) for number in count(last, -1))


def lies_ahead(at: str, now: datetime) -> bool:
    """Whether a recorded time is in the future: the clock of its writer was ahead, and no code may wait for that time.
    Clocks of two machines may differ a little."""
    try:
        return datetime.fromisoformat(at) > now + _SKEW
    except (ValueError, TypeError):  # no time at all
        return False


def ahead(moment: Moment, now: datetime) -> str:
    """A recorded time in the future, or nothing."""
    times = [moment.last_at, *(each.due for fired in moment.fired.values() for each in fired)]
    return next((at for at in times if lies_ahead(at, now)), "")


def said_ahead(at: str) -> str:
    """The text about it."""
    return (
        f"a record of {at} is in the future: a clock was fast, or this clock is slow. The schedule follows this clock"
    )


def is_overruled(opened: Open, moment: Moment) -> bool:
    """Whether a person has resumed the run in this very window. It does not pause the run again."""
    return bool(moment.lifted) and opened.begin <= datetime.fromisoformat(moment.lifted) < opened.end


def check_times(store: Store, definition: Definition) -> None:
    """InvalidFile if `windows:` or `schedule:` contain invalid times. The schema only checks their form."""
    rules: tuple[tuple[str, Sequence[Window | ScheduledTask]], ...] = (
        ("windows", definition.windows),
        ("schedule", definition.schedule),
    )
    wrong = [
        ((of, number, problem.place), problem)
        for of, each in rules
        for number, rule in enumerate(each)
        for problem in _problems(rule)
    ]
    names = [start.name for start in definition.schedule]
    taken = [number for number, name in enumerate(names) if name in names[:number]]
    remedy = "Give this one another `name:`"
    wrong += [
        (("schedule", number, "name"), Problem("", repr(names[number]), "a name of its own", remedy))
        for number in taken
    ]
    if wrong:
        place = definition_file.places(store.read(DEFINITION).data)
        raise InvalidFile(DEFINITION, [problem._replace(place=place(where)) for where, problem in wrong])


def _problems(rule: Window | ScheduledTask) -> Iterator[Problem]:
    """The key is the place."""
    # Imported here, and below: most runs have neither, and the two take 10 ms.
    from zoneinfo import ZoneInfo

    from cronsim import CronSim, CronSimError

    try:
        if isinstance(rule, Window) or not rule.every:
            CronSim(rule.cron, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        said = str(error).lower().replace("bad ", "a bad ")
        remedy = "Write `0 22 * * fri` for every Friday at 22:00"
        yield Problem("cron", f"{rule.cron!r} with {said}", _CRON, remedy)
    try:
        ZoneInfo(rule.timezone)
    except (LookupError, ValueError, OSError):
        remedy = "Write a name like Europe/Berlin; if this machine has no time zone data, `pip install tzdata`"
        yield Problem("timezone", repr(rule.timezone), "the name of a time zone", remedy)
    if isinstance(rule, Window) and not rule.duration:
        yield Problem("duration", "0", "a duration", "Write its duration, like 2h")


def _last(window: Window, now: datetime) -> Open | None:
    """The last opening at `now` or before."""
    for begin in _times(window, now + _AROUND, reverse=True):
        if begin <= now:
            return _opened(window, begin)
    return None


def _next(rule: Window | ScheduledTask, after: datetime) -> datetime | None:
    if isinstance(rule, ScheduledTask) and rule.every:
        return next(_multiples(rule, after)) + timedelta(seconds=rule.every)
    return next((begin for begin in _times(rule, after - _AROUND) if begin > after), None)


def _times(rule: Window | ScheduledTask, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
    """The times from `start` on, forwards or backwards, in UTC."""
    from zoneinfo import ZoneInfo

    from cronsim import CronSim

    times = CronSim(rule.cron, start.astimezone(ZoneInfo(rule.timezone)), reverse=reverse)
    for time in times:
        yield time.astimezone(UTC)


def _opened(window: Window, begin: datetime) -> Open:
    return Open(window, begin, begin + timedelta(seconds=window.duration))


# The budget

BUDGET = "the budget"
"""The requester of a pause because a budget is used up."""

_VERY_LARGE = 1e15

NEARLY = 0.8
"""A person is warned from this share of a budget on."""

Kind = Literal["steps", "tokens", "usd", "time"]


class Share(Struct, frozen=True):
    """How much of one limit is used. `time` in seconds."""

    kind: Kind
    used: float
    limit: float

    @property
    def is_used_up(self) -> bool:
        return self.used >= self.limit

    @property
    def is_nearly(self) -> bool:
        """Whether to warn a person, who can still act."""
        return NEARLY * self.limit <= self.used < self.limit

    @property
    def reason(self) -> str:
        """The reason of the pause: `cost: the budget of $5.00 is used up ($5.02)`."""
        return f"cost: the budget of {self._limit} is used up ({self._amount(self.used)})"

    @property
    def words(self) -> str:
        """`$4.10 of $5.00`, `800 of 1000 tokens`."""
        return f"{self._amount(self.used)} of {self._limit}"

    @property
    def _limit(self) -> str:
        said = self._amount(self.limit)
        return f"{said} {self.kind}" if self.kind in ("steps", "tokens") else said

    def _amount(self, value: float) -> str:
        if self.kind == "usd" and value < _VERY_LARGE:
            return usd(value)
        return f"{_number(value)} s" if self.kind == "time" else _number(value)


def shares(budget: Budget, steps: int, tokens: int, usd: float, seconds: float) -> Iterator[Share]:
    """The share of each limit."""
    used: tuple[tuple[Kind, float, float | None], ...] = (
        ("steps", steps, budget.steps),
        ("tokens", tokens, budget.tokens),
        ("usd", usd, budget.usd),
        ("time", seconds, budget.time),
    )
    for kind, so_much, limit in used:
        if limit is not None:
            yield Share(kind, so_much, limit)


def shares_of(budget: Budget, moment: Moment, now: datetime) -> list[Share]:
    """What a run has used by `now`, as far as it is durable."""
    usage = moment.usage
    return list(shares(budget, usage.steps, usage.tokens, usage.usd, at_work(moment, now)))


def at_work(moment: Moment, now: datetime) -> float:
    """Seconds in which a process had the run, including the current one."""
    since = datetime.fromisoformat(moment.opened_at) if moment.opened_at and not moment.clean else now
    return moment.usage.seconds + max(0.0, (now - since).total_seconds())


def check_budget(budget: Budget, moment: Moment) -> None:
    """Refused if the budget that paused a stopped run is still used up."""
    if moment.pause is None or moment.pause.by != BUDGET:
        return
    for share in shares_of(budget, moment, datetime.fromisoformat(moment.last_at)):
        if share.is_used_up:
            raise Refused(
                f"the run can't continue: {share.reason}",
                path=DEFINITION,
                remedy=f"raise `budget: {share.kind}:` in {DEFINITION}, then type `satchel resume`",
            )


def checked_cost(tokens: Any, usd: Any, output_tokens: Any, model: Any) -> tuple[int, float]:
    """The tokens and the money of `run.spend`. UsageError if its arguments are no valid cost."""
    for name, value in (("tokens", tokens), ("output_tokens", output_tokens)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UsageError(
                f"run.spend() got {name}={value!r}", remedy="give the number of used tokens: a whole number, 0 or more"
            )
    if output_tokens > tokens:
        raise UsageError(
            f"run.spend() got output_tokens={output_tokens} of tokens={tokens}",
            remedy="give all tokens as `tokens`; `output_tokens` are those of them that the model has written",
        )
    if isinstance(usd, bool) or not isinstance(usd, int | float) or not math.isfinite(usd) or usd < 0:
        raise UsageError(f"run.spend() got usd={usd!r}", remedy="give the cost: a number, 0 or more")
    if not isinstance(model, str):
        raise UsageError(f"run.spend() got model={model!r}", remedy="give the name of the model, a text")
    return tokens, float(usd)


def _number(value: float) -> str:
    if value >= _VERY_LARGE:  # a stranger's: it may be too large for a float
        return "a very large number"
    return f"{value:.10g}" if value >= 1e6 else f"{value:.4g}" if value < 1000 else f"{value:.1f}".removesuffix(".0")
