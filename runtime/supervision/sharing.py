"""Processes that several runs share: those that run them, and the keeper of the runs that have a process of their own.

A shared process is a child with one more pair of pipes: through them it is told which runs to start and to stop, and it
tells how each has ended. Its runs are tasks of one event loop. To a supervisor, a seat is what a child is; but to kill
it is to kill the process, and all of its runs with it. It is killed when its event loop hangs or its memory grows too
large: one of its runs does that to all of them, and it is not known which.

`--isolate` of `serve` or `fleet` and `isolate:` of workspace.yaml can each ask for a process of its own (`process`),
and one of them has to allow sharing (`none`). A run with `restart_every` wants a new process from time to time, so it
has one of its own.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Literal, NamedTuple

from msgspec import Struct

from ...workspace.base import DEFINITION, SatchelError, UsageError, visible
from ...workspace.formats import Definition
from ...workspace.store import Store
from ..live import Word
from .child import Child, environment, interpreter

Isolate = Literal["process", "none"]

ALONE = 76
"""The exit code of a run that can't share the process: it needs one of its own. For its supervisor only."""

NO_KEEPER = "it shares a process, so it has no keeper, and a kill may cost the answers of models"

_STDERR = 2
_CROWD = 4
"""Runs in each process, before another process is started."""
_MOST_RUNS, _LONGEST = 1000, 3600.0
"""After so many runs, or seconds, a process takes no more: what little each leaves behind goes with the process."""
_IDLE = 30.0  # seconds that it stays without runs
_EVERY = 2.0  # seconds between two looks at its memory
_PATIENCE, _GLANCE = 10.0, 0.02  # seconds that one without runs has to end, and between two looks
_ENDING = 1.0  # seconds until what a dead process has said must have been read


def may_share(isolate: Isolate | None, definition: Definition) -> bool:
    """Whether a run may share a process where its starter says `isolate`. None: it does not say."""
    said = {isolate, definition.isolate}
    return "process" not in said and "none" in said and not definition.restarts


def shared_processes(root: str, say: Callable[[str], None], limits: ShareLimits | None = None) -> SharedProcesses:
    """As many as this machine has room for; none is started yet. `root` is shown as the argument of each. `say` is
    called with what becomes of one."""
    share = shared_by_processes(usable_cores(), usable_memory())
    limits = limits or (ShareLimits(memory=share.memory) if share.memory else ShareLimits())
    return SharedProcesses(root, share.processes, limits, say)


class ShareLimits(Struct, frozen=True):
    """When a shared process is killed."""

    silent: float = 15.0  # seconds without a sign of its event loop
    memory: int = 1 << 31  # bytes


class SharedProcess:
    """One of them. `why`: what it was killed for."""

    def __init__(self, root: str, limits: ShareLimits):
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._child = Child(
                    ["serve", "--", root], is_only=False, patience=None, output=_STDERR, given=theirs.fileno()
                )
            except BaseException:
                ours.close()
                raise
        self._orders, self._limits = ours, limits
        self._began = self._empty_since = self._looked_at = time.monotonic()
        self._taken = 0  # seats so far
        self.seats: dict[int, Seat] = {}
        self.why = ""
        self._leaves = False  # it takes no more runs
        self._frozen = self._is_read = self._is_swept = False
        self._changing = threading.RLock()  # `serve` polls in threads where the runs are in a bucket
        self._reader = threading.Thread(target=self._read, name="satchel-shared", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def takes_runs(self) -> bool:
        is_used_up = self._taken >= _MOST_RUNS or time.monotonic() > self._began + _LONGEST
        return not (self._leaves or is_used_up or self.why) and self.poll() is None

    def seat(self, folder: str, drain_timeout: float | None) -> Seat:
        """Start the run of `folder`, an absolute path or a URL, in it. OSError if it can't be told."""
        with self._changing:
            self._taken += 1
            seat = self.seats[self._taken] = Seat(self, self._taken)
            try:
                self._tell({"run": seat.number, "folder": folder, "drain_timeout": drain_timeout})
            except BaseException:
                self.leave(seat)
                raise
            return seat

    def leave(self, seat: Seat) -> None:
        """The run has ended there."""
        with self._changing:
            self.seats.pop(seat.number, None)
            self._empty_since = time.monotonic()
            self._set_patience()

    def ask(self, seat: Seat, number: signal.Signals) -> None:
        with suppress(OSError):  # it has just ended
            self._tell({"ask": seat.number, "signal": number.name})

    def poll(self) -> int | None:
        """None while it lives; then its exit code. All that it has said is known then."""
        code = self._child.poll()
        if code is not None and not self._is_read:
            self._reader.join(_ENDING)  # no longer: something that a run has started may hold the other end
            self._is_read = True
        return code

    def silent_for(self, now: float) -> float:
        return self._child.silent_for(now)

    def look(self, now: float) -> None:
        """Kill it if it does harm to its runs. Let it end if no run needs it."""
        if self.poll() is not None:
            return
        if (silent := self.silent_for(now)) > self._limits.silent:
            self.kill(f"was killed: its event loop has hung for {silent:.0f} s")
        elif now > self._looked_at + _EVERY:
            self._looked_at = now
            if (memory := _memory_of(self.pid)) > self._limits.memory:
                self.kill(f"was killed: it takes {memory >> 20:,} MiB, more than {self._limits.memory >> 20:,}")
        if not self.seats and (now > self._empty_since + _IDLE or not self.takes_runs):
            if self._leaves and now > self._empty_since + 2 * _IDLE:
                self.kill("was killed: it has no run any more, and did not end")
            self.end()

    def kill(self, why: str) -> None:
        """With all of its runs."""
        self.why = self.why or why
        self._child.kill()

    def end(self) -> None:
        """It ends when it has no run."""
        self._leaves = True
        with suppress(OSError):
            self._orders.shutdown(socket.SHUT_WR)

    def wait(self) -> None:
        """For its end, which it was told."""
        until = time.monotonic() + _PATIENCE
        while self.poll() is None:
            if time.monotonic() > until:
                self._child.kill()
            time.sleep(_GLANCE)
        self.kill_rest()

    def kill_rest(self) -> None:
        """After its end: kill what it has left in its session."""
        if not self._is_swept:
            self._is_swept = True
            self._child.kill_rest()

    def freeze(self) -> None:
        self._frozen = True
        self._child.freeze()

    def thaw(self, seconds: float) -> None:
        if self._frozen:  # each of its seats is told
            self._frozen = False
            self._child.thaw(seconds)

    def may_drain_for(self, seat: Seat, patience: float | None) -> None:
        with self._changing:
            seat.patience = patience
            self._set_patience()

    def _set_patience(self) -> None:
        """As long as the most patient of its runs needs."""
        each = [seat.patience for seat in self.seats.values()]
        known = [patience for patience in each if patience is not None]
        self._child.may_drain_for(max(known, default=0.0) if len(known) == len(each) else None)

    def _tell(self, order: dict[str, object]) -> None:
        data = json.dumps(order).encode() + b"\n"
        if self._orders.send(data, socket.MSG_DONTWAIT) < len(data):
            raise BlockingIOError("the process does not read what it is told")  # it is frozen, and killed soon

    def _read(self) -> None:
        """What it tells of its runs. In a thread of its own, which rings the bell of `serve` as the end of a child
        does."""
        with self._orders, self._orders.makefile("rb") as lines, suppress(OSError, ValueError):  # its last line is torn
            for line in lines:
                said = json.loads(line)
                seat = self.seats.get(said.get("run", 0))
                if seat is not None and "rests" in said:
                    seat.rests = said["rests"]
                elif seat is not None:
                    seat.last_word = Word(said["code"], said["text"])
                self._leaves = self._leaves or "leaves" in said
                os.kill(os.getpid(), signal.SIGCHLD)


class Seat:
    """The place of one run in a shared process. See `Child` for what its methods do."""

    def __init__(self, process: SharedProcess, number: int):
        self._process, self.number = process, number
        self._began = time.monotonic()
        self.last_word: Word | None = None
        self.rests = False  # the run has stopped, and only its notices are still being sent
        self.patience: float | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def age(self) -> float:
        return time.monotonic() - self._began

    @property
    def why(self) -> str:
        """What its process was killed for."""
        return self._process.why

    def poll(self) -> int | None:
        """None while it runs; then 0, or the exit code of the process if that has ended without a word of the run."""
        code = self._process.poll()
        if self.last_word is not None:
            code = 0
        if code is not None:
            self._process.leave(self)
        return code

    @property
    def has_died(self) -> bool:
        """The process has ended, with all of its runs."""
        return self._process.poll() is not None

    def silent_for(self, now: float) -> float:
        return self._process.silent_for(now)

    def ask(self, number: signal.Signals) -> None:
        self._process.ask(self, number)

    def may_drain_for(self, patience: float | None) -> None:
        self._process.may_drain_for(self, patience)

    def freeze(self) -> None:
        self._process.freeze()

    def thaw(self, seconds: float) -> None:
        self._began += seconds
        self._process.thaw(seconds)

    def kill(self) -> None:
        self._process.kill("was killed: one of its runs had to be stopped by force")

    def kill_rest(self) -> None:
        if self.has_died:
            self._process.kill_rest()


class SharedProcesses:
    """Those of one `serve`, or of a program that supervises runs."""

    def __init__(self, root: str, at_most: int, limits: ShareLimits, say: Callable[[str], None]):
        """`say` is called with what becomes of a process."""
        self._root, self._at_most, self._limits, self._say = root, at_most, limits, say
        self._processes: list[SharedProcess] = []
        self.crashed: set[str] = set()  # folders of runs that have ended a process of their own: these share no more
        self._changing = threading.Lock()

    def sharing(
        self, folder: str, drain_timeout: float | None, alone: Callable[[str], None], warn: Callable[[str], None] | None
    ) -> RunSharing | None:
        """For the supervisor of the run in `folder`, an absolute path or a URL. `alone` is called with why it gets a
        process of its own after all; `warn`, for a run that wants a keeper, with that it has none. None: it has a
        process of its own from the start."""
        if folder in self.crashed:
            return None
        if warn is not None:
            warn(f"{NO_KEEPER}; with `isolate: process` in its workspace.yaml it has one")
        return RunSharing(self, folder, drain_timeout, alone)

    def seat(self, folder: str, drain_timeout: float | None) -> Seat:
        """Start the run of `folder` in the process with the fewest runs, or in a new one."""
        with self._changing:
            open_ones = [each for each in self._processes if each.takes_runs]
            if len(open_ones) < self._at_most and all(len(each.seats) >= _CROWD for each in open_ones):
                open_ones.append(SharedProcess(self._root, self._limits))
                self._processes.append(open_ones[-1])
            return min(open_ones, key=lambda each: len(each.seats)).seat(folder, drain_timeout)

    def look(self) -> None:
        """At each of them."""
        now = time.monotonic()
        with self._changing:
            for each in [*self._processes]:
                each.look(now)
                if each.poll() is not None:
                    self._processes.remove(each)
                    each.kill_rest()
                    if each.why:
                        self._say(f"process {each.pid} {visible(each.why)}")

    def end(self) -> None:
        """All of them, when `serve` ends: their runs have ended."""
        with self._changing:
            for each in self._processes:
                each.end()
            for each in self._processes:
                each.wait()
            self._processes.clear()


class RunSharing:
    """How one run shares a process with others."""

    def __init__(
        self, processes: SharedProcesses, folder: str, drain_timeout: float | None, alone: Callable[[str], None]
    ):
        self._processes, self._folder, self._drain_timeout, self._alone = processes, folder, drain_timeout, alone

    def seat(self) -> Seat:
        """Start the run in a shared process."""
        return self._processes.seat(self._folder, self._drain_timeout)

    def left(self, why: str) -> None:
        """It gets a process of its own now."""
        self._alone(why)

    def look(self) -> None:
        """At the shared processes."""
        self._processes.look()

    def has_crashed(self) -> None:
        """A process that was its own has died."""
        self._processes.crashed.add(self._folder)


def _memory_of(pid: int) -> int:
    """Bytes of memory that a process has in use; 0 where the system does not tell."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


# How many there may be: what the machine has

_LEAST = 512 << 20  # bytes: an interpreter with large libraries, and some runs


class MachineShare(NamedTuple):
    """How many processes with many runs may use the machine, and the bytes of memory that each may take; 0: any."""

    processes: int
    memory: int


def shared_by_processes(cores: int, memory: int) -> MachineShare:
    """One process for each core, and half of the memory for all of them. Where that is too little for so many, there
    are fewer: a process that has no room for an interpreter would be killed with its runs again and again."""
    processes = max(1, min(cores, memory // 2 // _LEAST)) if memory else cores
    return MachineShare(processes, memory // 2 // processes)


def usable_cores() -> int:
    """The number of cores that this process may use, of the machine or of its container. At least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def usable_memory() -> int:
    """The bytes of memory of the machine, or of its container. 0 where the system does not tell."""
    found = [int(limit) for (limit,) in _limits("memory.max") if limit.isdecimal()]
    with suppress(OSError, ValueError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found, default=0)


def _quota(groups: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> float | None:
    """The smallest limit of this process's control group (version 2) and the groups around it, in cores; None: no
    limit."""
    limits = [words for words in _limits("cpu.max", groups, own) if words[0] != "max"]
    return min((int(limit) / int(period) for limit, period in limits), default=None)


def _limits(name: str, groups: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> Iterator[list[str]]:
    """What this file says, in words, for the control group of this process and each group around it."""
    try:
        with open(own) as file:
            path = next((line[3:].strip() for line in file if line.startswith("0::")), "")
    except (OSError, ValueError):
        return
    while path:
        with suppress(OSError, ValueError), open(f"{groups}{path.rstrip('/')}/{name}") as file:
            yield file.read().split()
        path = os.path.dirname(path) if path != "/" else ""


# The keeper

_BACKLOG = 512
_AGAIN = 1.0  # seconds between two starts
_NEEDS = ("aiohttp", "multidict", "yarl")


class KeeperProcess:
    """Started for the first run that wants one. Safe for threads: `serve` has one for each run in a bucket."""

    def __init__(self, say: Callable[[str], None]):
        """`say` is called when it has died."""
        self._say = say
        self._secret, self._providers = b"", dict[str, str]()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._lock = threading.Lock()  # one start at a time

    def variables(self, url: str) -> dict[str, str]:
        """The variables of the environment that lead the process of a run to it. UsageError if it can't be started."""
        from ..keeper import addresses

        with self._lock:
            if self._socket is None:
                self._open()
            assert self._socket is not None
            base = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        return addresses.environment(base, self._secret, url, self._providers)

    @property
    def pid(self) -> int | None:
        """Of its process, if there is one."""
        return self._process.pid if self._process is not None else None

    def look(self) -> None:
        """Start it again if it has died."""
        with self._lock:
            if self._process is None or self._process.poll() is None or time.monotonic() - self._began < _AGAIN:
                return
            self._say(f"the keeper (process {self._process.pid}) has died; it starts again")
            self._start()

    def close(self) -> None:
        """No run is left. It reads to their end the answers that a next start may ask for."""
        with self._lock:
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()
                threading.Thread(target=self._process.wait, name="satchel-keeper", daemon=True).start()
            if self._socket is not None:
                self._socket.close()
            self._process = self._socket = None

    def _open(self) -> None:
        import secrets
        import socket

        from ..keeper import addresses

        check_installed()
        self._secret, self._providers = secrets.token_bytes(32), addresses.real()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self._start()

    def _start(self) -> None:
        assert self._socket is not None
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        number = self._socket.fileno()
        self._process = subprocess.Popen(
            [*interpreter(), "keeper", "--socket", str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(number,),
            env=environment(),
        )
        self._began = time.monotonic()
        told = {"secret": self._secret.hex(), "providers": self._providers}
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has died already: `look` sees it
            self._process.stdin.write(json.dumps(told).encode() + b"\n")
            self._process.stdin.flush()


def check_installed() -> None:
    """UsageError without the packages of a keeper."""
    from importlib.util import find_spec

    if missing := [name for name in _NEEDS if find_spec(name) is None]:
        raise UsageError(
            f"a keeper needs {', '.join(missing)}", remedy="install it with `pip install 'satchel[keeper]'`"
        )


def wants_keeper(store: Store) -> bool:
    """Whether workspace.yaml asks for one. Only a file that has the word is parsed: that would delay each start."""
    with suppress(SatchelError, OSError):  # the start itself says what is wrong
        if b"keeper" in store.read(DEFINITION).data:
            from ...workspace.inspect import define

            return define(store).keeper
    return False
