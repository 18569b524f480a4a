"""Keep the runnable workspaces below a folder running, a few at a time.

Looks at files, imports no agent and takes no lock; only what it starts does: children, or the tasks of a program.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from ....workspace.base import DEFINITION, SatchelError, StorageFailed
from ....workspace.inspect import discovery, lease
from ....workspace.state import EXIT_CODES
from ....workspace.store import Store, open_store
from ...limits import utc_now
from ..child.background import open_log
from ..child.child import listening
from ..child.supervisor import STORAGE, Order, Policy, Supervisor, heard
from .judging import NEVER, Going, Known, due_since, has_not_gone_on, has_taken, judge, told, wants_merge
from .roots import FolderRoot, Root, UrlRoot
from .schedule import Schedule

_TURN = 1.0  # seconds after which it turns, whatever comes
_BUSY = 30.0  # seconds until it is tried again when another process had it
_FIRST, _LONGEST = 1.0, 60.0  # seconds between two starts that came to nothing
_STORAGE = (StorageFailed, OSError)
_GLANCE = 0.1  # seconds between two looks at whether a look in a thread is over

Kind = Literal[
    "started",
    "completed",
    "failed",
    "refused",
    "paused",
    "waiting",
    "sleeping",
    "busy",
    "cancelled",
    "crashed",
    "interrupted",
    "damaged",
    "warned",
    "storage",
    "late",
    "listening",
]
_OUTCOMES: dict[int, Kind] = {
    **{code: cast("Kind", status) for status, code in EXIT_CODES.items()},
    2: "refused",
    6: "busy",
    8: "storage",
}


class ServeEvent(Struct, frozen=True):
    """An event of a workspace. Its folder is as it was found below the root."""

    kind: Kind
    folder: str
    text: str = ""


class Server:
    """Call `turn` again and again. `store` is that of a root that is a URL: then threads make the looks, the starts and
    the polls. No start begins during a look."""

    def __init__(
        self,
        root: str,
        at_most: int,
        tell: Callable[[ServeEvent], None],
        drain_timeout: float | None = None,
        policy: Policy | None = None,
        clock: Callable[[], datetime] = utc_now,
        store: Store | None = None,
        make: Callable[[Known], Going] | None = None,
    ):
        """`make` makes what has the workspace; without it a child does."""
        self._root: Root = FolderRoot(root) if store is None else UrlRoot(store)
        self._thread: threading.Thread | None = None
        self._typed, self._at_most, self._tell, self._clock = root, at_most, tell, clock
        self._drain_timeout, self._policy = drain_timeout, policy
        self._make = make or self._child
        self._known: dict[str, Known] = {}
        self._looked_at = float("-inf")
        self._has_looked = False
        self._trouble = ""
        self._same: dict[str, list[str]] = {}  # folders by the run_id that they have in common
        self.stops = False

    @property
    def running(self) -> list[Supervisor]:
        """The children."""
        return [known.supervisor for known in self._taken if isinstance(known.supervisor, Supervisor)]

    @property
    def _taken(self) -> list[Known]:
        return [known for known in list(self._known.values()) if known.is_taken]

    @property
    def is_idle(self) -> bool:
        """Nothing runs, and nothing is due. After a stop: nothing runs; a start that waits for the storage is given
        up."""
        everything = list(self._known.values())
        if self.stops:
            return not any(known.supervisor or (known.is_busy and not known.is_starting) for known in everything)
        if self._is_looking or not self._has_looked:
            return False
        now = time.monotonic()
        due = (
            known.may_be_held or known.wanted_since or (known.due_since and known.not_before <= now)
            for known in everything
        )
        return not any(known.is_taken or known.is_busy for known in everything) and not any(due)

    @property
    def _is_looking(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def wake_at(self) -> float:
        """By time.monotonic."""
        if self._is_looking:
            return time.monotonic() + _GLANCE
        looks_at = float("inf") if self.stops else self._looked_at + self._root.every
        glance_at = time.monotonic() + _GLANCE
        polls_at = (
            glance_at if known.is_busy or known.supervisor is None else known.supervisor.wake_at
            for known in self._taken
        )
        return min([looks_at, *polls_at])

    def turn(self) -> None:
        for known in self._taken:
            self._aside(known, self._poll)
        if self.stops or self._is_looking:
            return
        if (look := self._next_look()) is not None:
            if not self._root.aside:
                look()
            else:
                self._thread = threading.Thread(target=look, name="satchel-serve-look", daemon=True)
                self._thread.start()
                return
        waiting = [known for known in self._known.values() if _waits_since(known) and not known.is_taken]
        for known in sorted(waiting, key=lambda known: (_waits_since(known), known.folder)):
            if len(self._taken) >= self._at_most:
                break
            if (known.wanted_since or known.not_before <= time.monotonic()) and not known.is_busy:
                known.is_starting = True
                self._aside(known, self._start)

    def want(self, place: str, folder: str) -> None:
        """Start this workspace, once there is a free place, whatever its files say: a program has asked for it. `place`
        is the one that the root has for it."""
        known = self._known.get(place)
        if known is None:
            store = open_store(folder)
            known = Known(folder, store, False, Schedule(store, self._clock()), is_apart=self._root.aside)
            self._known[place] = known
        known.wanted_since = known.wanted_since or time.time()

    def look_soon(self) -> None:
        """The next turn looks at everything."""
        self._looked_at = float("-inf")

    def ask(self, number: signal.Signals) -> None:
        """Start nothing any more, and pass the signal on."""
        self.stops = True
        for known in self._taken:
            known.asked.append(number)
            self._aside(known, self._pass_on)

    def _aside(self, known: Known, work: Callable[[Known], None]) -> None:
        """Where reading is a request, each workspace has a thread for this: slow storage delays neither signals nor
        other workspaces. Does nothing if that thread is busy: the next turn comes soon."""
        if not self._root.aside:
            work(known)
        elif not known.is_busy:
            known.thread = threading.Thread(target=work, args=(known,), name="satchel-serve-run", daemon=True)
            known.thread.start()

    def _pass_on(self, known: Known) -> None:
        while known.asked and known.supervisor is not None:
            known.supervisor.ask(known.asked.popleft())

    def _next_look(self) -> Callable[[], None] | None:
        """Look at everything, or in between at those whose time has come since."""
        if time.monotonic() >= self._looked_at + self._root.every:
            self._looked_at = time.monotonic()
            return self._look
        now = self._clock()
        due = [known for known in self._known.values() if self._root.aside and known.has_come(now)]
        return partial(self._look_at, due) if due else None

    def _look_at(self, due: list[Known]) -> None:
        for known in due:
            known.seen = self._clock()
        try:
            self._root.refresh([known.folder for known in due])
        except (SatchelError, OSError):
            return  # the next look at everything reports it and corrects it
        for known in due:
            try:
                is_gone = known.store.version(DEFINITION) is None
            except (SatchelError, OSError):
                is_gone = False  # a write has failed, and so did the next listing: judging it reports that
            if is_gone:
                self._looked_at = float("-inf")  # only a look at everything drops it
                continue
            self._fire(known)
            if not known.is_taken:
                self._judge(known)

    def _look(self) -> None:
        try:
            folders = dict(self._root.folders())
        except (SatchelError, OSError) as error:
            self._tell_of_root(str(error))
            self._looked_at = time.monotonic()
            return
        self._tell_of_root("")
        found = set(folders)
        for place, folder in folders.items():
            before = self._known.get(place)
            if before is None or (before.is_apart and not before.is_taken and not before.wanted_since):
                with suppress(SatchelError):  # it has just been removed
                    store = self._root.store(folder)
                    self._known[place] = Known(folder, store, not self._has_looked, Schedule(store, self._clock()))
        for place, known in list(self._known.items()):
            known.seen = self._clock()
            if place in found:
                self._fire(known)
            if known.is_taken:
                continue
            if place not in found and not known.wanted_since:
                del self._known[place]
            else:
                self._judge(known)
        self._warn_of_duplicates()
        self._looked_at, self._has_looked = time.monotonic(), True

    def _warn_of_duplicates(self) -> None:
        """Once, as long as they are the same."""
        same = discovery.duplicate_groups(
            (known.folder, known.run_id) for known in self._known.values() if known.run_id
        )
        for run_id, folders in same.items():
            if self._same.get(run_id) != folders:
                self._tell(ServeEvent("warned", folders[0], discovery.describe_duplicates(run_id, folders)))
        self._same = same

    def _tell_of_root(self, trouble: str) -> None:
        """Once, as long as it is the same."""
        if trouble and trouble != self._trouble:
            self._tell(ServeEvent("damaged", self._typed, trouble))
        self._trouble = trouble

    def _fire(self, known: Known) -> None:
        """Put the due tasks of its schedule into its inbox, whether it runs or not."""
        try:
            for text in known.schedule.look(self._clock()):
                self._tell(ServeEvent("warned", known.folder, text))
            known.told.pop("schedule", None)
        except Exception as error:  # whatever is wrong with this one, the others go on
            self._complain(known, "schedule", error)

    def _complain(self, known: Known, of: str, error: Exception) -> None:
        """Once, as long as it is the same, whichever code has found it."""
        is_ours = isinstance(error, SatchelError)
        text = str(error) if is_ours else f"can't be read ({type(error).__name__}: {error})"
        if text not in known.told.values():
            self._tell(ServeEvent("storage" if isinstance(error, _STORAGE) else "damaged", known.folder, text))
        known.told[of] = text

    def _judge(self, known: Known) -> None:
        now = self._clock()
        is_held: bool | None = False
        try:
            signature = self._root.signature(known.folder)
            if signature != known.signature or known.verdict.passing:
                known.signature = signature
                known.verdict = judge(known.store, now, tried=known.tried, afresh=known.afresh)
                known.run_id = known.verdict.run_id or known.run_id
                known.told.pop("files", None)
            verdict = known.verdict
            is_settled = signature == known.settled and not verdict.by_clock
            is_due = verdict.starts and not is_settled and (verdict.at is None or verdict.at <= now)
            is_held = self._is_held(known) if is_due else False
        except Exception as error:  # whatever is wrong with this one, the others go on
            passing, is_due = isinstance(error, _STORAGE), False
            verdict = known.verdict = replace(NEVER, passing=passing, is_open=passing)
            self._complain(known, "files", error)
        known.may_be_held = is_held is None
        known.afresh = known.afresh and (is_due or verdict.is_open)
        if is_due and is_held is not False:
            known.due_since = 0.0  # its holder may run elsewhere; a run with a left-over lease is due again
        elif is_due and not known.due_since:
            known.due_since = due_since(verdict, known.afresh)
        elif not is_due:
            known.due_since, known.in_vain, known.not_before = 0.0, 0, 0.0

    def _is_held(self, known: Known) -> bool | None:
        """Whether a process elsewhere has it, as far as can be told without a lock. None: not known yet."""
        is_renewed = self._root.is_renewed(known.folder)
        if is_renewed is False or lease.holder(known.store) is not None:
            return is_renewed
        is_gone = known.store.version(lease.PATH) is None  # since it was listed, and so the rest of the listing is old
        return None if is_gone else False

    def _start(self, known: Known) -> None:
        try:
            if not self.stops:
                self._begin(known)
        finally:
            known.is_starting = False

    def _begin(self, known: Known) -> None:
        if not self._root.aside:
            # It may have changed since it was looked at, and an emergency must not be missed. In a bucket the child
            # looks again, before it does anything.
            known.signature = None
            self._judge(known)
        is_due = bool(known.due_since) and known.verdict.starts
        if not is_due and not known.wanted_since:
            return
        known.wanted_since = 0.0
        try:
            supervisor = self._make(known)
            if self.stops:  # since it was decided to start it
                return
            supervisor.start()
        except (SatchelError, OSError) as error:
            if isinstance(error, _STORAGE):
                self._tell(ServeEvent("storage", known.folder, f"{error}; {self._try_again(known)}"))
            else:
                known.settled = known.signature
                self._tell(ServeEvent("damaged", known.folder, str(error)))
            return
        known.due_since, known.supervisor = 0.0, supervisor
        self._tell(ServeEvent("started", known.folder, known.verdict.why if is_due else "its program has asked for it"))

    def _child(self, known: Known) -> Supervisor:
        patience = [] if self._drain_timeout is None else ["--drain-timeout", str(self._drain_timeout)]
        words = ["run", "--quiet", *patience, "--", known.folder]
        order = Order(words, words, self._drain_timeout, is_only=False, output=lambda: open_log(known.store))
        say = lambda text: self._tell(ServeEvent("crashed", known.folder, text))  # noqa: E731
        late = lambda text: self._tell(ServeEvent("late", known.folder, text))  # noqa: E731
        store = open_store(known.folder) if self._root.aside else known.store  # its own looks, at nothing else
        return Supervisor(store, order, say, self._policy, late)

    def _poll(self, known: Known) -> None:
        supervisor = known.supervisor
        if supervisor is None:
            return  # it is being started
        try:
            self._pass_on(known)
            supervisor.poll()
        except (SatchelError, OSError) as error:  # the folder is gone, or the disk
            self._complain(known, "child", error)
        if supervisor.code is None:
            return
        known.told.pop("child", None)
        known.tried = self._clock()
        with suppress(SatchelError, OSError):
            self._root.refresh([known.folder])  # with what the child has written
        known.signature, known.due_since = None, 0.0
        known.afresh = known.afresh and has_not_gone_on(known, supervisor.code)
        code, text = supervisor.code, supervisor.why or supervisor.error or told(known, supervisor.code)
        with suppress(OSError, SatchelError):
            is_settled = code in (1, 2) or (code == 4 and wants_merge(known))
            known.settled = self._root.signature(known.folder) if is_settled else None
        again = ""
        if code == 6:
            known.not_before = time.monotonic() + _BUSY
        elif code == STORAGE:
            again = self._try_again(known)
        elif code in (3, 4) or (code == 0 and not has_taken(known)):
            self._try_again(known)  # if it is due again at once, something that it needs is missing
        else:
            known.in_vain, known.not_before = 0, 0.0
        if self._root.aside:  # the next look at everything may be far off: the time to look at this one has come
            known.verdict = replace(NEVER, at=self._clock(), passing=True)
        known.supervisor = None  # from here on a look in a thread may judge it, by what was just listed
        kind = _OUTCOMES.get(code, "interrupted")
        self._tell(ServeEvent(kind, known.folder, "; ".join(part for part in (text, again) if part)))

    def _try_again(self, known: Known) -> str:
        """After some time, and later each time."""
        delay = min(_LONGEST, _FIRST * 2.0**known.in_vain)
        known.in_vain += 1
        known.not_before = time.monotonic() + delay
        return f"it starts again in {delay:.0f} s"


def _waits_since(known: Known) -> float:
    """For the order of the starts; 0: it does not wait."""
    return known.wanted_since or known.due_since


def serve(server: Server, *, once: bool) -> None:
    """Turn it until a signal has come and all children have ended; with `once`, until nothing is due. Handles signals,
    so only in the main thread. A second SIGINT cuts off the children's work."""
    with listening() as bell:
        while True:
            server.turn()
            if server.is_idle and (once or server.stops):
                return
            for number in heard(bell, min(server.wake_at, time.monotonic() + _TURN), server.running):
                server.ask(number)


def usable_cores() -> int:
    """The number of cores that this process may use, of the machine or of its container. At least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def _quota(groups: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> float | None:
    """The smallest limit of this process's control group (version 2) and the groups around it, in cores; None: no
    limit."""
    found: list[float] = []
    try:
        with open(own) as file:
            path = next((line[3:].strip() for line in file if line.startswith("0::")), "")
    except (OSError, ValueError):
        return None
    while path:
        with suppress(OSError, ValueError), open(f"{groups}{path.rstrip('/')}/cpu.max") as file:
            limit, period = file.read().split()
            found.append(int(limit) / int(period))  # a ValueError: `max`
        path = os.path.dirname(path) if path != "/" else ""
    return min(found, default=None)
