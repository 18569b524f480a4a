"""When one workspace's child is drained, killed, or started again.

A machine of states that waits for nothing: `supervise` and `serve` turn it.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Literal

from ...workspace.definition import Definition
from ...workspace.errors import SatchelError
from ...workspace.looking import define
from ...workspace.pausefile import PATH as PAUSE
from ...workspace.pausefile import SIGNAL
from ...workspace.record import PauseRequested
from ...workspace.store import Store
from .. import fetching
from .aftermath import after_kill
from .child import FORCE_AFTER, Child, how_it_died
from .glancing import Glance
from .signals import listening

DOCUMENTED = frozenset((*range(8), 130))
"""Exit codes of a child that has come to its end. Any other, and any signal, is a crash."""
PAUSED, FAILED = 3, 1

_GLANCE = 0.5  # seconds between two looks at pause.yaml
_ONE_PRESS = 0.2  # seconds in which two SIGINTs are one: some tools send it to a process and to its group


@dataclass(frozen=True, slots=True)
class Policy:
    """How a crash is answered. Seconds."""

    first_delay: float = 1.0  # doubled after each early death
    longest_delay: float = 60.0
    early: float = 10.0  # who lived longer did not die early
    most_early: int = 5  # early deaths in a row after which it is given up
    grace: float = FORCE_AFTER  # beyond the drain timeout
    hard_after: float = 2.0  # after a second SIGINT


@dataclass(frozen=True, slots=True)
class Order:
    """What to run. `words` are those of the command line; a restart is a `run`, since what `resume` was told counts
    once."""

    words: Sequence[str]
    restart: Sequence[str]
    drain_timeout: float | None = None  # None: as workspace.yaml says
    is_only: bool = True  # the supervisor's process has no other child
    output: Callable[[], IO[bytes]] | None = None


Phase = Literal["running", "draining", "resting", "over"]


class Supervisor:
    """Of one workspace. `poll` it when a signal came, a child ended, or `wake_at` is reached; once `code` is not None
    it is over, and `why` says what the child itself could not say."""

    def __init__(self, store: Store, order: Order, say: Callable[[str], None], policy: Policy | None = None):
        self.store, self.code, self.why = store, None, ""
        self._order, self._say, self._policy = order, say, policy or Policy()
        self._phase: Phase = "over"
        self._child: Child | None = None
        self._early_deaths = 0
        self._due = 0.0  # when the phase is over by itself; inf: never
        self._glance = 0.0
        self._asked_at = 0.0
        self._pause = Glance(store)
        self._forced_by = ""
        self._request = PauseRequested(reason="emergency stop", by="its supervisor", mode="emergency")
        self._drains_since: float | None = None

    code: int | None
    why: str

    @property
    def wake_at(self) -> float:
        """By time.monotonic."""
        return min(self._due, self._glance)

    def start(self) -> None:
        """The first start is the child's own to refuse, in its own words."""
        self._start(self._order.words)

    def poll(self) -> None:
        now = time.monotonic()
        if self._child is not None and (code := self._child.poll()) is not None:
            self._ended(self._child, code)
        elif self._phase == "resting" and self._pause.is_stopped():
            self._over(PAUSED, f"not started again: {PAUSE} says that the run is to stay stopped")
        elif self._phase == "resting" and now >= self._due:
            self._start(self._order.restart)
        elif self._phase == "draining" and now >= self._due:
            self._force("it did not stop in time")
        elif self._child is not None and now >= self._glance and self._is_emergency():
            self._force("emergency stop")
        self._glance = now + _GLANCE

    def ask(self, number: signal.Signals) -> None:
        """Drain the child, as `number` asks for. A second SIGINT stops it hard."""
        if self._phase == "resting":
            self._over(PAUSED, "stopped while it waited to start the run again")
        elif self._phase == "running":
            self._drain(number)
        elif self._phase == "draining" and number == signal.SIGINT and self._asked_at + _ONE_PRESS < time.monotonic():
            self._say("stopping hard")
            self._asked_at = float("inf")
            self._due = time.monotonic() + self._policy.hard_after
            self._forced_by = "a second signal"
            self._the_child().ask(number)

    def _start(self, words: Sequence[str]) -> None:
        definition = self._definition()
        timeout = self._timeout(definition)
        patience = None if timeout is None else timeout + self._policy.grace
        output = self._order.output() if self._order.output else None
        try:
            self._child = Child(words, is_only=self._order.is_only, patience=patience, output=output)
        finally:
            if output:
                output.close()
        self._phase, self._due = "running", float("inf")

    def _drain(self, number: signal.Signals) -> None:
        timeout = self._timeout(self._definition())
        self._phase, self._asked_at = "draining", time.monotonic()
        self._request, self._drains_since = PauseRequested(reason=SIGNAL, by=number.name), self._asked_at
        self._due = float("inf") if timeout is None else self._asked_at + timeout + self._policy.grace
        self._the_child().ask(number)

    def _force(self, why: str) -> None:
        self._say(f"{why}: process {self._the_child().pid} is killed")
        self._forced_by = self._forced_by or why
        self._phase, self._due = "draining", float("inf")
        self._the_child().kill()

    def _ended(self, child: Child, code: int) -> None:
        self._child = None
        if self.store.abilities.remote:
            fetching.clear(child.pid)
        child.kill_rest()  # as a shell's job or a service ends: nothing of it works on beside the next one
        if code in DOCUMENTED and not (code == 130 and self._phase == "draining"):
            self._over(code)
            return
        if self._phase == "draining":
            why = self._forced_by or f"it died {how_it_died(code)} while it was stopping"
            waited = 0.0 if self._drains_since is None else time.monotonic() - self._drains_since
            error = after_kill(self.store, self._request, round(waited, 3))
            self._over(PAUSED, f"stopped by force ({why})" + (f"; {error}" if error else ""))
            return
        self._crashed(child, code)

    def _crashed(self, child: Child, code: int) -> None:
        policy = self._policy
        is_early = child.age < policy.early
        self._early_deaths = self._early_deaths + 1 if is_early else 0
        died = f"process {child.pid} died {how_it_died(code)} after {child.age:.1f} s"
        if self._early_deaths >= policy.most_early:
            self._over(FAILED, f"{died}; that were {self._early_deaths} early deaths in a row, so it is given up")
        elif self._pause.is_stopped():
            self._over(PAUSED, f"{died}; not started again: {PAUSE} says that the run is to stay stopped")
        else:
            longest = min(policy.longest_delay, policy.first_delay * 2 ** max(0, self._early_deaths - 1))
            delay = longest * random.uniform(0.75, 1.0)  # many that died together must not come back together
            self._phase, self._due = "resting", time.monotonic() + delay
            self._say(f"{died}; it is started again in {delay:.1f} s")

    def _over(self, code: int, why: str = "") -> None:
        self._phase, self._due, self.code, self.why = "over", float("inf"), code, why

    def _the_child(self) -> Child:
        assert self._child is not None
        return self._child

    def _is_emergency(self) -> bool:
        """An emergency stop was asked for since this began, on another machine or before the lease named anybody."""
        return not self._forced_by and self._pause.is_emergency()

    def _definition(self) -> Definition | None:
        try:
            return define(self.store)
        except SatchelError:
            return None  # the child says what is wrong with it

    def _timeout(self, definition: Definition | None) -> float | None:
        if self._order.drain_timeout is not None:
            return self._order.drain_timeout
        if definition is None:
            return Definition("", "").drain_timeout
        return None if definition.drain_then == "extend" else definition.drain_timeout


def supervise(store: Store, order: Order, say: Callable[[str], None], policy: Policy | None = None) -> Supervisor:
    """Run a workspace's child until it has come to its end, or is given up. In the main thread: handles signals."""
    with listening() as bell:
        supervisor = Supervisor(store, order, say, policy)
        supervisor.start()
        while supervisor.code is None:
            for number in bell.wait(supervisor.wake_at - time.monotonic()):
                supervisor.ask(number)
            supervisor.poll()
        return supervisor
