"""Drain, kill and restart the child of one workspace.

A state machine that never waits: `supervise` and `serve` turn it. The child is a process of the run's own, or its seat
in a process that it shares with others. A seat that is lost counts as no crash: the run goes on alone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Literal

from msgspec import Struct

from ...workspace.base import SIGNAL, SatchelError, StorageFailed
from ...workspace.formats import pause_file
from ...workspace.inspect import lease
from ...workspace.state import EXIT_CODES
from ...workspace.store import Store
from .child import (
    ASKED,
    FORCE_AFTER,
    RESTARTS,
    Bell,
    Child,
    bound_log,
    how_it_died,
    listening,
    mark_start,
    reap_orphans,
)
from .forced_stop import Deadline, Glance, after_crashes, after_kill, stop_wanted
from .sharing import ALONE, KeeperProcess, RunSharing, Seat, wants_keeper

if TYPE_CHECKING:
    from ...workspace.journal import PauseRequested

PAUSED, FAILED, STORAGE = 3, 1, 8
INTERRUPTED = 130

_GLANCE = 0.5  # seconds between two glances at what may ask for a stop
_TURN = 0.05  # seconds between two looks at a child where no signal tells of its end
_ONE_PRESS = 0.2  # seconds in which two SIGINTs are one: some tools send it to a process and to its group


class Policy(Struct, frozen=True):
    """How to react to a crash. Seconds."""

    first_delay: float = 1.0  # doubled after each early death
    longest_delay: float = 60.0
    early: float = 10.0  # a longer life is no early death
    most_early: int = 5  # early deaths in a row, and no more starts
    grace: float = FORCE_AFTER  # beyond the drain timeout
    hard_after: float = 2.0  # after a second SIGINT
    silent: float = 30.0  # a child that is silent for so long is reported


class Order(Struct, frozen=True):
    """What to run. `words` are those of the command line. A restart is a `run`, since the options of `resume` count
    once. `given` is what each process can read from stdin."""

    words: Sequence[str]
    restart: Sequence[str]
    drain_timeout: float | None = None  # None: as workspace.yaml says
    is_only: bool = True  # the supervisor's process has no other child
    output: Callable[[], IO[bytes]] | None = None
    given: bytes = b""
    sharing: RunSharing | None = None  # None: it has a process of its own
    keeper: KeeperProcess | None = None  # for runs that want one
    is_kept: bool = False  # this one does, whatever workspace.yaml says


Phase = Literal["running", "draining", "resting", "over"]


class Supervisor:
    """For one workspace. Call `poll` when a signal came, a child ended, or `wake_at` is reached. Once `code` is not
    None it is over, and `why` says what the child itself could not say."""

    def __init__(
        self,
        store: Store,
        order: Order,
        say: Callable[[str], None],
        policy: Policy | None = None,
        late: Callable[[str], None] | None = None,
    ):
        """`say` is called with events of the child, `late` with delays."""
        self.store, self.code, self.why = store, None, ""
        self.is_last = False  # this child: what it leaves is started by another supervisor
        self._order, self._say, self._policy = order, say, policy or Policy()
        self._late, self._named = late or say, set[str]()
        self._phase: Phase = "over"
        self._child: Child | Seat | None = None
        self._is_alone = order.sharing is None
        self._early_deaths = 0
        self._due = 0.0  # when the phase is over by itself; inf: never
        self._glance = float("inf")
        self._asked_at = 0.0
        self._pause = Glance(store)
        self._deadline: Deadline  # of the child
        self._forced_by = ""
        self._request: PauseRequested  # what the child is killed for
        self._drains_since: float | None = None

    code: int | None
    why: str
    error: str = ""  # what the child itself has said

    @property
    def rests(self) -> bool:
        """The run has stopped, and its process only waits for its notices."""
        return self._child is not None and self._child.rests

    @property
    def wake_at(self) -> float:
        """By time.monotonic."""
        return min(self._due, self._glance)

    def start(self) -> None:
        """At the first start the child itself refuses, in its own words."""
        self._start(self._order.words)

    def poll(self) -> None:
        now = time.monotonic()
        glances = now >= self._glance
        if glances:
            self._glance = now + _GLANCE  # also if it fails
            bound_log(self.store)
            if self._order.keeper is not None:
                self._order.keeper.look()
            if self._child is not None and self._child.age > self._policy.early:
                _prepare()
        try:
            if self._child is not None and (code := self._child.poll()) is not None:
                self._ended(self._child, code)
            elif self._phase == "resting":
                self._rest(now)
        except (SatchelError, OSError) as error:
            self._over(STORAGE if isinstance(error, StorageFailed | OSError) else FAILED, str(error))
        if self._child is None:
            return
        if glances and self._phase == "draining" and not self._forced_by:
            self._bound_drain()
        if self._phase == "draining" and now >= self._due:
            self._force("it did not stop in time")
        elif glances and not self._forced_by:
            self._glance_at_requests(now)
        if glances:
            self._child.may_drain_for(self._deadline.patience)
            self._name_if_late(self._child, now)

    def _rest(self, now: float) -> None:
        """Wait until it is time to start again."""
        request = self._stop_wanted() if self._pause.has_changed() and self._pause.is_stopped() else None
        if request is not None:
            self._request = request
            self._put_right(0.0, f"not started again: {pause_file.PATH} says that the run is to stay stopped")
        elif self.is_last:
            self._over(INTERRUPTED)
        elif now >= self._due:
            self._start(self._order.restart)

    def _stop_wanted(self) -> PauseRequested | None:
        return stop_wanted(self.store, self._deadline.began)

    def _name_if_late(self, child: Child | Seat, now: float) -> None:
        silent, asked = child.silent_for(now), self._deadline.waited(now)
        if self._phase == "draining":
            asked = max(asked, now - (self._drains_since or now))
        limit = self._deadline.extended
        of = f"process {child.pid}"
        why = "its agent blocks the event loop, or the process is frozen; it can't react to a pause"
        self._name("silent", silent > self._policy.silent, f"{of} has been silent for {silent:.0f} s: {why}")
        is_late = limit is not None and asked > limit
        self._name(
            "draining", is_late, f"{of} has not stopped {asked:.0f} s after the request; `drain: then:` is extend"
        )

    def _name(self, kind: str, is_so: bool, text: str) -> None:
        """Report it once, as long as it is so."""
        if is_so and kind not in self._named:
            self._late(text)
        (self._named.add if is_so else self._named.discard)(kind)

    def ask(self, number: signal.Signals) -> None:
        """Drain the child, as signal `number` requests. A second SIGINT cuts its work off."""
        if self._phase == "resting":
            self._request = _asked_by(number)
            self._put_right(0.0, "stopped while it waited to start the run again")
        elif self._phase == "running":
            self._drain(number)
        elif self._phase == "draining" and number == signal.SIGINT and self._asked_at + _ONE_PRESS < time.monotonic():
            self._say("stopping by force")
            self._asked_at = float("inf")
            self._due = time.monotonic() + self._policy.hard_after
            self._forced_by = "a second signal"
            self._the_child().ask(number)

    def freeze(self) -> None:
        """Stop the child until `thaw`."""
        if self._child is not None:
            self._child.freeze()

    def thaw(self, seconds: float) -> None:
        """Continue after so many seconds, which count for no time limit."""
        self._due += seconds
        if self._drains_since is not None:
            self._drains_since += seconds
        if self._child is not None:
            self._deadline.prolong(seconds)
            self._child.thaw(seconds)

    def reap(self, pid: int) -> bool:
        """Collect the child if `pid` is the child and it has ended."""
        return self._child is not None and self._child.pid == pid and self._child.poll() is not None

    def _glance_at_requests(self, now: float) -> None:
        """A stop that was requested in another way than by a signal to this process."""
        if self._pause.has_changed():
            file = self._pause.file
            if file is not None and file.asks_for_emergency:
                self._request = lease.pause_request(file, "")
                self._force("emergency stop")
                return
            self._deadline.pause_has_changed(now)
        if (late := self._deadline.overdue(now)) is not None:
            self._request, self._drains_since = late.request, now - late.waited
            self._force("it did not stop in time")

    def _start(self, words: Sequence[str]) -> None:
        timeout, grace = self._order.drain_timeout, self._policy.grace
        self._deadline = Deadline(self.store, self._pause, timeout, grace, time.monotonic())
        output = self._order.output() if self._order.output else None
        try:
            mark_start(self.store, output)
            patience = self._deadline.patience_so_far  # reading workspace.yaml now would delay the child
            order = self._order
            self._child = self._seat() or Child(
                words,
                is_only=order.is_only,
                patience=patience,
                output=output,
                given=order.given,
                variables=self._variables,
            )
        finally:
            if output:
                output.close()
        self._phase, self._due = "running", float("inf")
        self._glance = time.monotonic() + _GLANCE

    @property
    def _variables(self) -> Mapping[str, str]:
        """Those that lead the child to a keeper, if the run wants one."""
        order = self._order
        if order.keeper is None or not (order.is_kept or wants_keeper(self.store)):
            return {}
        return order.keeper.variables(self.store.url)

    def _seat(self) -> Seat | None:
        if self._order.sharing is None or self._is_alone:
            return None
        seat = self._order.sharing.seat()
        seat.may_drain_for(self._deadline.patience_so_far)
        return seat

    def _drain(self, number: signal.Signals) -> None:
        self._phase, self._asked_at = "draining", time.monotonic()
        self._request, self._drains_since = _asked_by(number), self._asked_at
        self._the_child().ask(number)
        self._bound_drain()

    def _bound_drain(self) -> None:
        """Until when a drain that a signal has requested may last, as far as workspace.yaml could be read by now."""
        assert self._drains_since is not None
        patience = self._deadline.patience
        self._due = float("inf") if patience is None else self._drains_since + patience

    def _force(self, why: str) -> None:
        child = self._the_child()
        others = ", and with it the runs that share it" if isinstance(child, Seat) else ""
        self._late(f"{why}; killing process {child.pid}{others}")
        self._forced_by = self._forced_by or why
        self._phase, self._due = "draining", float("inf")
        child.kill()

    def _ended(self, child: Child | Seat, code: int) -> None:
        self._child = None
        if self.store.abilities.remote and child.has_died:
            from ..agent import code as download

            download.clear(child.pid)
        child.kill_rest()  # like the end of a shell's job or a service: nothing of it is left to the next one
        word = child.last_word
        if word is not None and word.code == RESTARTS and self._phase == "running" and self.is_last:
            self._over(EXIT_CODES["sleeping"])
        elif word is not None and word.code == RESTARTS and self._phase == "running":
            self._early_deaths = 0
            self._say(f"process {child.pid} has ended for `restart_every`; another one continues")
            self._start(self._order.restart)
        elif word is not None and word.code == ALONE and self._phase == "running":
            self._leave_the_others(word.text)
            if self.is_last:
                self._over(INTERRUPTED)
            else:
                self._start(self._order.restart)
        elif word is not None and not (word.code in (RESTARTS, ALONE, INTERRUPTED) and self._phase == "draining"):
            self.error = word.text
            self._over(word.code)
        elif self._phase == "draining":
            why = self._forced_by or f"it died {how_it_died(code)} while it was stopping"
            waited = 0.0 if self._drains_since is None else time.monotonic() - self._drains_since
            self._put_right(waited, f"stopped by force ({why})")
        else:
            self._crashed(child, code)

    def _put_right(self, waited: float, why: str) -> None:
        """The child was killed, or has died, while it stopped for `self._request`."""
        left = after_kill(self.store, self._request, round(waited, 3), self._deadline.began)
        if left.is_between:
            why = "stopped between two processes, because of `restart_every`"
        elif left.was_closed and self._phase == "draining":
            why = "the run was closed, and its process could not say so"
        if left.error:
            why += f"; {left.error}"
        self._over(EXIT_CODES.get(left.status, PAUSED), why)

    def _leave_the_others(self, why: str) -> None:
        """It gets a process of its own."""
        assert self._order.sharing is not None
        self._is_alone = True
        self._order.sharing.left(why)

    def _crashed(self, child: Child | Seat, code: int) -> None:
        policy = self._policy
        is_shared = isinstance(child, Seat)
        if self._order.sharing is not None and not is_shared:
            self._order.sharing.has_crashed()
        is_early = child.age < policy.early and not is_shared
        self._early_deaths = self._early_deaths + 1 if is_early else 0
        died = f"process {child.pid} died {how_it_died(code)} after {child.age:.1f} s"
        if isinstance(child, Seat):
            died = f"process {child.pid}, which other runs shared, {child.why or f'died {how_it_died(code)}'}"
        request = None
        with suppress(SatchelError, OSError):  # the next start looks at it again
            self._pause.has_changed()  # from now on only a change counts
            request = self._stop_wanted() if self._pause.is_stopped() else None
        if request is not None:
            self._request = request
            waited = self._deadline.waited(time.monotonic())
            self._put_right(
                waited, f"{died}; not started again: {pause_file.PATH} says that the run is to stay stopped"
            )
        elif self._early_deaths >= policy.most_early:
            why = f"giving up after {self._early_deaths} crashes shortly after start; {died}"
            error = after_crashes(self.store, why)
            self._over(FAILED, f"{why}; {error}" if error else why)
        elif self.is_last:
            self._over(INTERRUPTED, died)
        else:
            import random  # for a run that has died

            longest = min(policy.longest_delay, policy.first_delay * 2 ** max(0, self._early_deaths - 1))
            share = random.uniform(0.0, 2.0) if is_shared else random.uniform(0.75, 1.0)
            delay = longest * share  # many that died together must not come back together
            self._phase, self._due = "resting", time.monotonic() + delay
            if is_shared:
                self._leave_the_others(f"{died}; it starts again in a process of its own")
            else:
                self._say(f"{died}; it starts again in {delay:.1f} s")

    def _over(self, code: int, why: str = "") -> None:
        self._phase, self._due, self.code, self.why = "over", float("inf"), code, why

    def _the_child(self) -> Child | Seat:
        assert self._child is not None
        return self._child


def _asked_by(number: signal.Signals) -> PauseRequested:
    from ...workspace.journal import PauseRequested

    return PauseRequested(reason=SIGNAL, by=number.name)


def _prepare() -> None:
    """Import what a stop or a crash needs and a short run does not. Import it now, because later the files of this
    program may be those of another version."""
    from ...workspace.formats import YamlDocument  # noqa: F401
    from ...workspace.lifecycle import opened, pausing  # noqa: F401
    from ...workspace.views import describe_record  # noqa: F401
    from ..agent import code  # noqa: F401
    from ..live import limits  # noqa: F401


def supervise(store: Store, order: Order, say: Callable[[str], None], policy: Policy | None = None) -> Supervisor:
    """Run a workspace's child until it has ended, or is given up. Handles signals, so only in the main thread."""
    with listening() as bell:
        supervisor = Supervisor(store, order, say, policy)
        supervisor.start()
        while supervisor.code is None:
            for number in heard(bell, supervisor.wake_at, [supervisor]):
                supervisor.ask(number)
            try:
                supervisor.poll()
            except (SatchelError, OSError):
                continue  # the child needs the storage, too, and stops by itself if that lasts
        return supervisor


def supervise_aside(
    store: Store, order: Order, say: Callable[[str], None], should_stop: Callable[[], bool]
) -> Supervisor:
    """`supervise` in any thread, for a program that runs several at once. Handles no signals: `should_stop` is asked
    again and again, and once it says so the child is drained."""
    supervisor = Supervisor(store, order, say)
    supervisor.start()
    is_asked = False
    while supervisor.code is None:
        if not is_asked and should_stop():
            is_asked = True
            supervisor.ask(signal.SIGTERM)
        with suppress(SatchelError, OSError):  # as above
            supervisor.poll()
        if order.sharing is not None:
            order.sharing.look()
        time.sleep(max(0.0, min(supervisor.wake_at - time.monotonic(), _TURN)))
    return supervisor


def heard(bell: Bell, until: float, supervisors: Collection[Supervisor]) -> list[signal.Signals]:
    """The signals that request a stop, up to a time of time.monotonic. Ctrl-Z stops this process and all children until
    SIGCONT. As the first process of a container, also collects orphans."""
    numbers = bell.wait(until - time.monotonic())
    if os.getpid() == 1:
        reap_orphans(lambda pid: any(supervisor.reap(pid) for supervisor in supervisors))
    if signal.SIGTSTP in numbers:
        began = time.monotonic()
        for supervisor in supervisors:
            supervisor.freeze()
        os.kill(os.getpid(), signal.SIGSTOP)
        for supervisor in supervisors:
            supervisor.thaw(time.monotonic() - began)
    return [number for number in numbers if number in ASKED]
