"""The process that runs a workspace, in `.satchel/lease.json`; and what pause.yaml asks of it, for other processes.

On a disk the lease is for people: the lock decides. In a bucket its holder writes it again and again, which decides
when another process tries to take the workspace (lifecycle/acquire.py); the fences decide who has it
(journal/segment_log.py).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta
from msgspec.json import Decoder

from ..base import LeaseHeld, SatchelError
from ..formats import PauseFile, decoder, jsontext, pause_file
from ..store import Store, read_own

if TYPE_CHECKING:
    from ..journal import PauseRequested

PATH = ".satchel/lease.json"
CLAIM = ".satchel/starting.json"
"""The process that is about to start it, for others that would: a lease that only saves starts."""

_LATE = 2
"""A holder without a heartbeat for so many times its ttl is no longer shown as one."""


_DYING = 2.0
"""Maximum seconds that a killed process, or a command, may need to release its lock."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the lease's machine."""

    pid: Annotated[int, Meta(gt=0, lt=2**31)]
    process_started: str  # tells it from a later one with its pid


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    format: int = 1
    run_id: str
    host: str
    pid: Annotated[int, Meta(gt=0, lt=2**31)]
    process_started: str  # tells a process from a later one with its pid
    epoch: int
    since: str
    url: str
    ttl: float = 0.0  # in a bucket: seconds without a heartbeat after which another process may try
    beat: int = 0
    supervisor: Process | None = None  # the supervisor, which restarts it after a crash
    is_brief: bool = False  # a command that does one thing and ends, no run
    is_shared: bool = False  # `serve` runs other workspaces in it, too
    is_left: bool = False  # its process let go of the workspace without closing it, and may live on
    has_failed: bool = False  # it did so for an error, and not because the agent has ended the process

    @property
    def process(self) -> str:
        """For people."""
        return f"process {self.pid} on {self.host}"


_lease: Decoder[Lease] = decoder(Lease)

_supervisor: Process | None = None
"""Of this process, for all workspaces that it opens."""

_is_shared = False
"""This process has runs of several workspaces, and `serve` watches over it."""


def share() -> None:
    """From now on the leases of this process say that several runs share it."""
    global _is_shared
    _is_shared = True


def is_shared() -> bool:
    """Whether `serve` runs several workspaces in this process. It is not known which of them has ended it, so its
    death counts against none; `serve` starts each again alone."""
    return _is_shared


def supervised_by(pid: int) -> None:
    """From now on the leases of this process name its supervisor."""
    global _supervisor
    _supervisor = Process(pid=pid, process_started=process_started(pid))


def parse(data: bytes) -> Lease | None:
    """None if it is not valid: the lease only informs, so a broken one must not stop anything."""
    return jsontext.decode(data, _lease)


def encode(lease: Lease) -> bytes:
    return jsontext.encode(lease)


def read(store: Store) -> Lease | None:
    return read_own(store, PATH, _lease)


def mine(store: Store, run_id: str, epoch: int, ttl: float = 0.0, *, is_brief: bool = False) -> Lease:
    import socket

    from ..journal import now  # imports all kinds of records, which a look at a lease does not need

    return Lease(
        run_id=run_id,
        host=socket.gethostname(),
        pid=os.getpid(),
        process_started=process_started(os.getpid()),
        epoch=epoch,
        since=now(),
        url=store.url,
        ttl=ttl,
        supervisor=_supervisor,
        is_brief=is_brief,
        is_shared=_is_shared,
    )


def holder(store: Store) -> Lease | None:
    """The process that holds the workspace, as far as this machine can tell without touching the lock.

    A test of the lock would refuse a run that starts at that moment. If only heartbeats tell, this compares the clocks
    of this machine and of the storage.
    """
    lease = read(store)
    if lease is None or has_died(lease):
        return None
    if lease.ttl and (beaten := store.trace(PATH).at):
        age = (datetime.now(UTC) - datetime.fromisoformat(beaten)).total_seconds()
        return lease if age < _LATE * lease.ttl else None
    return lease


def has_died(lease: Lease) -> bool:
    """Whether its process certainly no longer runs, or has let go. Of one on another machine the former is never
    known."""
    if lease.is_left:
        return True
    import socket  # slow to import, and most looks find no owner

    if lease.host != socket.gethostname():
        return False
    return not (process_started(lease.pid) == lease.process_started and _exists(lease.pid))


@contextmanager
def held(store: Store) -> Iterator[None]:
    """Hold the workspace by its lock, if there is one. LeaseHeld, with the name of the holder, if another process
    does."""
    with ExitStack() as stack:
        if store.abilities.lock:
            _take_lock(store, stack)
        yield


def _take_lock(store: Store, stack: ExitStack) -> None:
    """A killed process can have ended and still hold the lock for a moment: its other threads, or a process that it was
    starting, end later. A command such as `satchel answer` also holds it for a moment. A process that has just taken
    it, or is about to release it, has no lease. So this waits for that moment."""
    end = time.monotonic() + _DYING
    while True:
        try:
            stack.enter_context(store.lock())
            return
        except LeaseHeld as error:
            lease = read(store)
            is_passing = lease is None or lease.is_brief or has_died(lease)
            if error.why is not None or not is_passing or time.monotonic() > end:
                if error.why is None and lease is not None:
                    _explain(error, store, lease)
                raise
        time.sleep(_DYING / 100)


def _explain(error: LeaseHeld, store: Store, lease: Lease) -> None:
    if has_died(lease):
        error.why = f"{lease.process} has ended, but a process that it started still holds the lock"
        error.remedy = f"end that process: `fuser {shlex.quote(store.url)}/.satchel/lock` names it"
    elif lease.pid == os.getpid() and lease.process_started == process_started(lease.pid):
        error.what, error.why = "this process is already running this workspace", f"since {lease.since}"
        error.remedy = "wait until that run returns: a folder holds one run"
    else:
        error.why = f"{lease.process} since {lease.since}"
        error.remedy = "wait until it ends, or stop it with `satchel pause --wait`"


def process_started(pid: int) -> str:
    """When a process began, in the system's own terms. Empty where the system does not tell, and for a process that has
    ended and only waits for its parent (in a container without an init it may wait for ever)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
    except (OSError, IndexError):
        return "" if os.path.exists("/proc/self/stat") else _started_by_ps(pid)


def _started_by_ps(pid: int) -> str:
    """Without /proc. Precise to the second: enough to tell a process from a later one with its number."""
    try:
        command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    state, _, started = told.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else started.strip()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def read_pause(store: Store) -> PauseFile | None:
    """The current file, as far as it can be understood; None if there is none. Takes no lock and does not wait for a
    save to end."""
    try:
        return pause_file.understood(store.read(pause_file.PATH, limit=pause_file.LIMIT).data)
    except FileNotFoundError:
        return None
    except SatchelError:  # a folder, a link, far too large: the run stays stopped
        return PauseFile()


def pause_request(file: PauseFile, by: str) -> PauseRequested:
    """The request, by `by` unless the file names another person."""
    from ..journal import PauseRequested  # imports all kinds of records, which a look does not need

    return PauseRequested(
        reason=file.reason or "manual",
        by=file.by or by or "a person",
        mode=file.lasting_mode or "drain",
        resume=file.resume or "continue",
        until=file.until,
    )
