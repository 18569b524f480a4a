"""What stops a run by itself, and what starts it: the windows and the schedule of workspace.yaml, with cron expressions
in their time zones, its budget, and `restart_every`.

The functions are pure: the caller gives the time. A time that does not exist in spring counts as the first time after
the gap. Of a time that exists twice in autumn the first counts. Only an expression whose minute or hour begins with `*`
follows real time: it has no times in the gap, and both of the doubled ones. Debian's cron does the same.

`Limits` obeys them in a run. A budget is checked before a step or an item begins and before a cost is added. So a run
whose last step uses it up still completes. The clock is checked every few seconds, and also by steps, for an agent that
never waits.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ...schemas import Problem
from ...workspace.base import DEFINITION, AgentError, InvalidFile, Refused, UsageError, time_text, usd
from ...workspace.formats import Budget, Definition, ScheduledTask, Window
from ...workspace.formats import definition as definition_file
from ...workspace.journal import PauseRequested, Spent
from ...workspace.store import Store

if TYPE_CHECKING:
    import asyncio

    from ...workspace.lifecycle import Workspace
    from ...workspace.state import Moment


WINDOW = "a window"
"""The requester of a pause because a window is open."""

BUDGET = "the budget"
"""The requester of a pause because a budget is used up."""

TICK = 2.0
"""Seconds between two looks at the clock. A timer set for hours would be late after a laptop's sleep."""

NEARLY = 0.8
"""A person is warned from this share of a budget on."""

_AROUND = timedelta(hours=3)
"""More than any clock was ever set back at once. A search that begins so much earlier misses nothing of a doubled
hour."""

_SKEW = timedelta(minutes=1)

_VERY_LARGE = 1e15

_CRON = "minute, hour, day, month and weekday, as in a crontab"

_NO_BUDGET = Budget()

Kind = Literal["steps", "tokens", "usd", "time"]


class Open(Struct, frozen=True):
    """A window that is open, or will be. Times in UTC."""

    window: Window
    begin: datetime
    end: datetime


_Opening = tuple[Window, datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


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


def pause_for(opened: Open) -> PauseRequested:
    """The request of an open window."""
    return PauseRequested(reason=opened.window.reason, by=WINDOW, until=time_text(opened.end))


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


class Limits:
    """For one opening of a run. Used from its loop; `spend` from any thread.

    `pause` asks the run to stop at its next safe point. `tell` gets notices for people. `tick` is called at each look
    at the clock.
    """

    def __init__(
        self,
        workspace: Workspace,
        pause: Callable[[PauseRequested], None],
        tell: Callable[[Literal["budget", "window"], str], None],
        tick: Callable[[], None],
    ):
        self._workspace, self._moment, self._pause = workspace, workspace.moment, pause
        self._tell, self._tick = tell, tick
        self._loop: asyncio.AbstractEventLoop | None = None  # while the agent runs
        self._thread = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when to look at the clock, by time.monotonic
        self._steps = 0  # there are no more than so many: those recorded, and those begun since
        self._warned: set[str] = set()
        self._restart: Callable[[str], None] | None = None
        self._began = time.monotonic()
        self._performed = 0  # steps that this process has begun
        self._over: set[_Opening] = set()  # windows that were obeyed, or that a person has overruled
        self._announced: set[_Opening] = set()

    def overrule(self) -> None:
        """A person wants the run to continue although a window is open."""
        now = utc_now()
        found = [current_window([window], now) for window in self._workspace.definition.windows]
        self._over |= {(opened.window, opened.begin) for opened in found if opened}

    def restart_with(self, restart: Callable[[str], None]) -> None:
        """From now on `restart_every` counts: a supervisor starts the next process."""
        self._restart = restart

    def start(self) -> None:
        """The agent is being entered, perhaps again. From now on a request here stops it."""
        if self._timer is not None:
            self._timer.cancel()
        from asyncio import get_running_loop  # those who only look at a run have no loop

        self._loop, self._thread = get_running_loop(), threading.get_ident()
        self._steps = self._moment.usage.steps
        self._warned = {share.kind for share in self._shares(utc_now()) if share.is_nearly}  # it was announced before
        self._look_on_time()

    def stop(self) -> None:
        """No code of the agent runs any more."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()

    # What is spent

    def spend(self, spent: Spent, count: dict[str, int] | None) -> None:
        """Record a cost. `count` is the number of equal costs in this attempt of a scope, outside its steps: costs that
        an earlier attempt has recorded do not count twice. Durable with the result of the step."""
        if self._loop is None:
            raise AgentError(
                "run.spend() was called after the run had stopped",
                why="the run can't record anything any more",
                remedy="await what spends before the step or the agent returns",
            )
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._spend, spent, count)
        else:
            self._spend(spent, count)

    def _spend(self, spent: Spent, count: dict[str, int] | None) -> None:
        if count is not None:
            n = count.get(spent.kind, 0)
            count[spent.kind] = n + 1
            recorded = self._moment.agents[spent.agent].scopes.get(spent.scope)
            if recorded is not None and n < recorded.spent.get(spent.kind, 0):
                return
            spent = replace(spent, n=n)
        self.look()  # an agent that only spends comes to no step
        self._workspace.journal.add(spent)
        self._warn()

    # Whether it may go on

    def stop_if_beyond(self, tokens: int, usd: float) -> bool:
        """Ask for a pause if the run has used up its budget with these tokens and this money, which are not recorded
        yet. On the loop. Returns whether it has."""
        usage, budgeted = self._moment.usage, self._workspace.definition.budget
        for share in shares(budgeted, 0, usage.tokens + tokens, usage.usd + usd, 0.0):
            if share.kind in ("tokens", "usd") and share.is_used_up:
                self._ask(share)
                return True
        return False

    def step_begins(self, under_way: int) -> None:
        """A step is about to begin next to `under_way` others; now is the time to ask for a pause."""
        if self._loop is not None and time.monotonic() >= self._due:
            self._look_at_clock()
        limit = self._workspace.definition.budget.steps
        if limit is not None:
            if self._steps >= limit:  # some of them may have failed
                self._steps = self._moment.usage.steps + under_way
            if self._steps >= limit:
                self._ask(Share("steps", self._steps, limit))
            self._steps += 1
        self.look()
        every = self._workspace.definition.restart_every.steps
        if self._restart is not None and every and self._performed >= every:
            self._restart(f"restart after {self._performed} steps")
        self._performed += 1

    def look(self) -> None:
        """Compare the use with the budget: ask for a pause, or warn."""
        if self._workspace.definition.budget == _NO_BUDGET:
            return
        for share in self._shares(utc_now()):
            if share.is_used_up:
                self._ask(share)
        self._warn()

    def _warn(self) -> None:
        if self._workspace.definition.budget == _NO_BUDGET:
            return
        for share in self._shares(utc_now()):
            if share.is_nearly and share.kind not in self._warned:
                self._warned.add(share.kind)
                self._workspace.journal.flush()  # a crash would contradict what people were told
                self._tell("budget", f"{share.words} used")

    def _ask(self, share: Share) -> None:
        if self._moment.pause is None:
            self._pause(PauseRequested(reason=share.reason, by=BUDGET))

    def _shares(self, now: datetime) -> Iterator[Share]:
        usage, seconds = self._moment.usage, at_work(self._moment, now)
        return shares(self._workspace.definition.budget, usage.steps, usage.tokens, usage.usd, seconds)

    # The clock

    def _look_on_time(self) -> None:
        """Look at the clock now, and again later."""
        if self._loop is None:
            return
        self._look_at_clock()
        self._timer = self._loop.call_later(max(0.0, self._due - time.monotonic()), self._look_on_time)

    def _look_at_clock(self) -> None:
        """Obey open windows, announce the next ones, and check the time of the budget."""
        now = utc_now()
        self._due = time.monotonic() + TICK
        self._tick()
        self._warn()
        definition = self._workspace.definition
        if definition.budget.time is not None:
            spent = Share("time", at_work(self._moment, now), definition.budget.time)
            self._wake_in(spent.limit - spent.used)
            if spent.is_used_up:
                self._ask(spent)
        if self._restart is not None and (every := definition.restart_every.seconds):
            lasted = time.monotonic() - self._began
            self._wake_in(every - lasted)
            if lasted >= every:
                self._restart(f"restart after {lasted:.0f} s")
        for window in definition.windows:
            self._obey(current_window([window], now))
            if (coming := next_opening([window], now)) is not None:
                self._announce(coming, now)

    def _obey(self, opened: Open | None) -> None:
        if opened is None or self._moment.pause is not None or (opened.window, opened.begin) in self._over:
            return
        self._over.add((opened.window, opened.begin))
        if not is_overruled(opened, self._moment):
            self._pause(pause_for(opened))

    def _announce(self, coming: Open, now: datetime) -> None:
        window, left = coming.window, (coming.begin - now).total_seconds()
        self._wake_in(left)
        if not window.notify_before or (window, coming.begin) in self._announced:
            return
        if left > window.notify_before:
            self._wake_in(left - window.notify_before)
            return
        self._announced.add((window, coming.begin))
        at, until = coming.begin.isoformat(" ", "minutes"), coming.end.isoformat(" ", "minutes")
        self._tell("window", f"the run pauses at {at}, until {until} ({window.reason})")

    def _wake_in(self, seconds: float) -> None:
        if seconds > 0:
            self._due = min(self._due, time.monotonic() + seconds)


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
    for at in times:
        yield at.astimezone(UTC)


def _multiples(start: ScheduledTask, now: datetime) -> Iterator[datetime]:
    """The times of `every`, from the last one up to `now` backwards. All processes that serve a run agree on them."""
    last = now.timestamp() // start.every
    return (datetime.fromtimestamp(number * start.every, UTC) for number in count(last, -1))


def _opened(window: Window, begin: datetime) -> Open:
    return Open(window, begin, begin + timedelta(seconds=window.duration))


def _number(value: float) -> str:
    if value >= _VERY_LARGE:  # a stranger's: it may be too large for a float
        return "a very large number"
    return f"{value:.10g}" if value >= 1e6 else f"{value:.4g}" if value < 1000 else f"{value:.1f}".removesuffix(".0")
