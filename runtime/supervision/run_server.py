"""Keep the runnable workspaces below a folder running, as many at a time as there are cores, each in a process of its
own or several in a shared one, until a signal comes or Satchel is upgraded.

Looks at files, imports no agent and takes no lock; only what it starts does: children, or the tasks of a program.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import SatchelError, version
from ...workspace.inspect import define
from ...workspace.state import EXIT_CODES
from ...workspace.store import Store, open_store
from ..live import utc_now
from .census import Census
from .child import listening, open_log
from .known_run import NEVER, Claim, Going, Known, RowOf, Schedule, has_not_gone_on, has_taken, told, wants_merge
from .lookout import STORAGE_ERRORS, FairOrder, Kind, Lookout, ServeEvent
from .sharing import Isolate, KeeperProcess, ShareLimits, may_share, shared_processes
from .supervisor import STORAGE, Order, Policy, Supervisor, heard

_TURN = 1.0  # seconds after which it turns, whatever comes
_BUSY = 30.0  # seconds until it is tried again when another process had it
_FIRST, _LONGEST = 1.0, 60.0  # seconds between two starts that came to nothing
_FULL = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN))
"""Errors of a machine that has no room for one more process."""
_TRIES = 3  # starts of a run that come to nothing, before a `serve --once` leaves it
_SHORT = 0.05  # seconds that a turn waits for a look
_GLANCE = 0.1  # seconds between two looks at whether a look in a thread is over

_OUTDATED = (
    "Satchel {} was upgraded or removed since this process began ({} is another file now). It starts nothing more, and "
    "ends when what runs has ended: start it again"
)

_OUTCOMES: dict[int, Kind] = {
    **{code: cast("Kind", status) for status, code in EXIT_CODES.items()},
    2: "refused",
    6: "busy",
    8: "storage",
}


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
        census: Census | None = None,
        isolate: Isolate | None = None,
        share_limits: ShareLimits | None = None,
        group_limits: Mapping[str, int] | None = None,
        is_kept: bool = False,
        row_of: RowOf | None = None,
    ):
        """`make` makes what has the workspace; without it a child does, of its own or a shared one, as `isolate` and
        the workspace say. `census` is told what each look has found. `group_limits`: see `FairOrder`. `is_kept`: each
        run wants a keeper. `row_of`: see `Lookout`."""
        self._order = FairOrder(group_limits)
        self._lookout = Lookout(root, store, tell, clock, census=census, row_of=row_of)
        self._root = self._lookout.root
        self._thread: threading.Thread | None = None
        self._busy: dict[str, Known] = {}  # by folder: what is taken, and some that were
        self._typed, self._at_most, self._tell, self._clock = root, at_most, tell, clock
        self._drain_timeout, self._policy, self._isolate, self._is_kept = drain_timeout, policy, isolate, is_kept
        # Neither has a process before the first run that wants one.
        self._shared = shared_processes(root, lambda text: tell(ServeEvent("crashed", root, text)), share_limits)
        self._keeper = KeeperProcess(lambda text: tell(ServeEvent("crashed", root, text)))
        self._make = make or self._child
        self.stops = self._finishes = False

    @property
    def running(self) -> list[Supervisor]:
        """The children."""
        return [known.supervisor for known in self._taken if isinstance(known.supervisor, Supervisor)]

    @property
    def _known(self) -> list[Known]:
        return [*self._lookout.known.values()]

    @property
    def _taken(self) -> list[Known]:
        self._busy = {folder: known for folder, known in self._busy.copy().items() if known.is_taken or known.is_busy}
        return [known for known in self._busy.values() if known.is_taken]

    @property
    def _placed(self) -> list[Known]:
        """Those that have a place: what only waits for its notices has none."""
        return [known for known in self._taken if known.supervisor is None or not known.supervisor.rests]

    @property
    def _groups(self) -> list[str]:
        """The group of each run that runs, also in another process, as of the last look at it."""
        placed = {*self._placed}
        return [known.group for known in self._known if known in placed or (known.is_held and not known.is_taken)]

    @property
    def is_idle(self) -> bool:
        """Nothing runs, and nothing is due. After a stop: nothing runs; a start that waits for the storage is given
        up."""
        busy = [*self._busy.values()]
        if self.stops:
            return not any(known.supervisor or (known.is_busy and not known.is_starting) for known in busy)
        if self._is_looking or not self._lookout.has_looked:
            return False
        if any(known.is_taken or known.is_busy for known in busy):
            return False
        now = time.monotonic()
        if any(known.wanted_since or known.not_before <= now for known in self.left):
            return False
        return not any(known.may_be_held for known in self._known)

    @property
    def left(self) -> list[Known]:
        """What is due, and has not been started."""
        return [known for known in self._lookout.left() if not known.is_taken]

    @property
    def has_tried(self) -> bool:
        """Whether each of these was tried often enough."""
        return all(known.in_vain >= _TRIES for known in self.left)

    @property
    def _is_looking(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def wake_at(self) -> float:
        """By time.monotonic."""
        if self._is_looking:
            return time.monotonic() + _GLANCE
        looks_at = float("inf") if self.stops else self._lookout.looks_at
        glance_at = time.monotonic() + _GLANCE
        polls_at = (
            glance_at if known.is_busy or known.supervisor is None else known.supervisor.wake_at
            for known in self._taken
        )
        return min([looks_at, *polls_at])

    def turn(self) -> None:
        self._shared.look()
        for known in self._taken:
            self._aside(known, self._poll)
        if self.stops or self._is_looking:
            return
        if (look := self._lookout.next_look()) is not None:
            self._thread = threading.Thread(target=look, name="satchel-serve-look", daemon=True)
            self._thread.start()
            if not self._root.aside:
                self._thread.join(_SHORT)
            if self._root.aside or self._is_looking:
                return
        self._fill()

    def _fill(self) -> None:
        """Start what is due while there are free places. A start that comes to nothing leaves its place to another."""
        left = self.left
        while (places := self._at_most - len(self._placed)) > 0:
            now = time.monotonic()
            ready = [known for known in left if not known.is_busy and (known.wanted_since or known.not_before <= now)]
            chosen = self._order.choose(ready, self._groups, places) if ready else []
            if not chosen:
                return
            for known in chosen:
                left.remove(known)
                known.is_starting = True
                self._busy[known.folder] = known
                self._aside(known, self._start)

    def want(self, place: str, folder: str) -> None:
        """Start this workspace, once there is a free place, whatever its files say: a program has asked for it. `place`
        is the one that the root has for it."""
        if (known := self._lookout.known.get(place)) is None:
            store = open_store(folder)
            known = Known(folder, store, False, Schedule(store, self._clock()), is_apart=self._root.aside)
            with suppress(SatchelError, OSError):  # its start says what is wrong
                definition = define(store)
                known.group, known.priority = definition.group, definition.priority
        self._lookout.want(place, known)

    def ignore_index(self) -> None:
        """The caller may end after the first look, and must not miss what the index keeps from it for a minute."""
        self._lookout.index = None

    def look_soon(self) -> None:
        """The next turn looks at everything."""
        self._lookout.looked_at = float("-inf")

    def ask(self, number: signal.Signals) -> None:
        """Start nothing any more, and pass the signal on."""
        self.stops = True
        for known in self._taken:
            known.asked.append(number)
            self._aside(known, self._pass_on)

    def finish(self, text: str) -> None:
        """Start nothing any more, and let what runs come to its end. `text` says why."""
        self.stops = self._finishes = True
        self._tell(ServeEvent("outdated", self._typed, text))

    def end(self) -> None:
        """Nothing runs any more."""
        self._shared.end()
        self._keeper.close()

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

    def _start(self, known: Known) -> None:
        try:
            if not self.stops:
                self._begin(known)
        finally:
            if known.supervisor is None:
                self._release(known)
            known.is_starting = False

    def _release(self, known: Known) -> None:
        if known.claim is not None:
            known.claim.release()

    def _begin(self, known: Known) -> None:
        try:
            # It may have changed since it was looked at: another `serve` has started it, or an emergency has come
            self._root.refresh([known.folder])
            known.signature = None
            self._lookout.judge(known)
            is_due = bool(known.due_since) and known.verdict.starts
            if not is_due and not known.wanted_since:
                return
            if not known.wanted_since:
                known.claim = known.claim or Claim(known.store)
                if not known.claim.take(known.run_id):
                    known.not_before = time.monotonic() + _FIRST
                    return
            known.wanted_since = 0.0
            supervisor = self._make(known)
            if self.stops:  # since it was decided to start it
                return
            supervisor.start()
        except (SatchelError, OSError) as error:
            if isinstance(error, OSError) and error.errno in _FULL and len(self._taken) > 1:
                known.not_before = time.monotonic() + _FIRST  # there is no free place: one becomes free
            elif isinstance(error, STORAGE_ERRORS):
                self._tell(ServeEvent("storage", known.folder, f"{error}; {self._try_again(known)}"))
            else:
                known.settled = known.signature
                self._tell(ServeEvent("damaged", known.folder, str(error)))
            return
        known.due_since, known.supervisor = 0.0, supervisor
        self._tell(ServeEvent("started", known.folder, known.verdict.why if is_due else "its program has asked for it"))

    def _child(self, known: Known) -> Supervisor:
        def say(kind: Kind, text: str) -> None:
            self._tell(ServeEvent(kind, known.folder, text))

        patience = [] if self._drain_timeout is None else ["--drain-timeout", str(self._drain_timeout)]
        words = ["run", "--quiet", *patience, "--", known.folder]
        definition, sharing = known.verdict.definition, None
        if definition is not None and may_share(self._isolate, definition):
            sharing = self._shared.sharing(
                known.store.url,  # which is not a path from where an agent may go
                self._drain_timeout,
                partial(say, "alone"),
                partial(say, "warned") if self._is_kept or definition.keeper else None,
            )
        order = Order(
            words,
            words,
            self._drain_timeout,
            is_only=False,
            output=lambda: open_log(known.store),
            sharing=sharing,
            keeper=self._keeper,
            is_kept=self._is_kept,
        )
        store = open_store(known.folder) if self._root.aside else known.store  # its own looks, at nothing else
        return Supervisor(store, order, partial(say, "crashed"), self._policy, partial(say, "late"))

    def _poll(self, known: Known) -> None:
        supervisor = known.supervisor
        if supervisor is None:
            return  # it is being started
        try:
            self._pass_on(known)
            if self._finishes and isinstance(supervisor, Supervisor):
                supervisor.is_last = True
            supervisor.poll()
        except (SatchelError, OSError) as error:  # the folder is gone, or the disk
            self._lookout.complain(known, "child", error)
        if supervisor.code is None:
            return
        known.told.pop("child", None)
        self._release(known)
        known.tried = self._clock()
        with suppress(SatchelError, OSError):
            self._root.refresh([known.folder])  # with what the child has written
        known.signature, known.due_since = None, 0.0
        known.afresh = known.afresh and has_not_gone_on(known, supervisor.code)
        code, text = supervisor.code, supervisor.why or supervisor.error or told(known, supervisor.code)
        with suppress(OSError, SatchelError):
            is_settled = code in (1, 2) or (code == 4 and wants_merge(known))
            known.settled = self._root.signature(known.store.url) if is_settled else None
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
            known.verdict = replace(NEVER, at=self._clock(), passing=True, figures=known.verdict.figures)
        known.supervisor = None  # from here on a look in a thread may judge it, by what was just listed
        kind = _OUTCOMES.get(code, "interrupted")
        self._tell(ServeEvent(kind, known.folder, "; ".join(part for part in (text, again) if part)))

    def _try_again(self, known: Known) -> str:
        """After some time, and later each time."""
        delay = min(_LONGEST, _FIRST * 2.0**known.in_vain)
        known.in_vain += 1
        known.not_before = time.monotonic() + delay
        return f"it starts again in {delay:.0f} s"


class ServeResult(Struct, frozen=True):
    """Why `serve` has ended. `left`: with `once`, the folders of what is due and could not be started. `is_outdated`:
    Satchel was upgraded, and `serve` is to be started again, in a new process."""

    left: list[str]
    is_outdated: bool = False


def serve(server: Server, *, once: bool) -> ServeResult:
    """Turn it until a signal has come and all children have ended; with `once`, until nothing is due, or what is due
    was tried some times. If Satchel was upgraded, until the children have ended. Handles signals, so only in the main
    thread. A second SIGINT cuts off the children's work."""
    installation, is_outdated = Installation(), False
    if once:
        server.ignore_index()
    with listening() as bell:
        while True:
            if not server.stops and (changed := installation.changed):
                is_outdated = True
                server.finish(_OUTDATED.format(installation.version, changed))
            server.turn()
            if (server.stops or once) and server.is_idle and (server.stops or server.has_tried):
                server.end()
                return ServeResult([known.folder for known in server.left] if once else [], is_outdated)
            for number in heard(bell, min(server.wake_at, time.monotonic() + _TURN), server.running):
                is_outdated = False  # this ends it for another reason
                server.ask(number)


# Whether Satchel was upgraded

_PACKAGE = __name__.partition(".")[0]

FileStatus = tuple[int, int, int]


class Installation:
    """The files of Satchel that this process has loaded, as they were when this was made. An installer replaces them
    all, and so does a checkout of another version in part. Then the runs that it starts would work with another version
    than it does itself, which has decided to start them and reads what they leave."""

    def __init__(self) -> None:
        loaded = [*sys.modules.items()]  # a copy: a server in another thread may be importing
        ours = [module for name, module in loaded if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")]
        paths = [getattr(module, "__file__", None) for module in ours]
        self._files = {path: status for path in paths if path and (status := _status(path))}
        self.version = version()

    @property
    def changed(self) -> str:
        """A file that is another one now, or gone; empty if all are as they were."""
        return next((path for path, status in self._files.items() if _status(path) not in (status, None)), "")


def _status(path: str) -> FileStatus | None:
    """None: that can't be told now."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return (0, 0, 0)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
