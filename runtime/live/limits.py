"""What stops a run by itself: an open window, a used-up budget, or `restart_every`.

A budget is checked before a step or an item begins and before a cost is added. So a run whose last step uses it up
still completes. The clock is checked every few seconds, and also by steps, for an agent that never waits.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from msgspec.structs import replace

from ...workspace.base import AgentError, time_text
from ...workspace.formats import Budget, Definition, Webhook, Window
from ...workspace.journal import PauseRequested, Spent
from ...workspace.lifecycle import Workspace
from ...workspace.store import Store
from . import rules
from .notices import Announcer
from .rules import Open, Share

WINDOW = "a window"
"""The requester of a pause because a window is open."""

TICK = 2.0
"""Seconds between two looks at the clock. A timer set for hours would be late after a laptop's sleep."""


_NO_BUDGET = Budget()

_Opening = tuple[Window, datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


def pause_for(opened: Open) -> PauseRequested:
    """The request of an open window."""
    return PauseRequested(reason=opened.window.reason, by=WINDOW, until=time_text(opened.end))


def check(store: Store, definition: Definition) -> None:
    """InvalidFile if `windows:`, `schedule:` or `notify:` can't work as they are written."""
    rules.check_times(store, definition)
    if any(isinstance(place, Webhook) for place in definition.notify):
        from . import notices  # imports what sends requests

        notices.check(store, definition)


class Limits:
    """For one opening of a run. Used from its loop; `spend` from any thread.

    `pause` asks the run to stop at its next safe point.
    """

    def __init__(self, workspace: Workspace, pause: Callable[[PauseRequested], None], announcer: Announcer):
        self._workspace, self._moment, self._pause, self._announcer = workspace, workspace.moment, pause, announcer
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
        found = [rules.current_window([window], now) for window in self._workspace.definition.windows]
        self._over |= {(opened.window, opened.begin) for opened in found if opened}

    def restart_with(self, restart: Callable[[str], None]) -> None:
        """From now on `restart_every` counts: a supervisor starts the next process."""
        self._restart = restart

    def start(self) -> None:
        """The agent is being entered, perhaps again. From now on a request here stops it."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
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
        for share in rules.shares(budgeted, 0, usage.tokens + tokens, usage.usd + usd, 0.0):
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
                self._announcer.tell("budget", f"{share.words} used")

    def _ask(self, share: Share) -> None:
        if self._moment.pause is None:
            self._pause(PauseRequested(reason=share.reason, by=rules.BUDGET))

    def _shares(self, now: datetime) -> Iterator[Share]:
        usage, seconds = self._moment.usage, rules.at_work(self._moment, now)
        return rules.shares(self._workspace.definition.budget, usage.steps, usage.tokens, usage.usd, seconds)

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
        self._announcer.say_problems()
        self._warn()
        definition = self._workspace.definition
        if definition.budget.time is not None:
            spent = Share("time", rules.at_work(self._moment, now), definition.budget.time)
            self._wake_in(spent.limit - spent.used)
            if spent.is_used_up:
                self._ask(spent)
        if self._restart is not None and (every := definition.restart_every.seconds):
            lasted = time.monotonic() - self._began
            self._wake_in(every - lasted)
            if lasted >= every:
                self._restart(f"restart after {lasted:.0f} s")
        for window in definition.windows:
            self._obey(rules.current_window([window], now))
            if (coming := rules.next_opening([window], now)) is not None:
                self._announce(coming, now)

    def _obey(self, opened: Open | None) -> None:
        if opened is None or self._moment.pause is not None or (opened.window, opened.begin) in self._over:
            return
        self._over.add((opened.window, opened.begin))
        if not rules.is_overruled(opened, self._moment):
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
        self._announcer.tell("window", f"the run pauses at {at}, until {until} ({window.reason})")

    def _wake_in(self, seconds: float) -> None:
        if seconds > 0:
            self._due = min(self._due, time.monotonic() + seconds)
