"""Identify processes for certain, and kill them with all processes of their session."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

from ....workspace.inspect import lease

_ROUNDS = 20  # rounds, because processes may be forked during the kill


def is_alive(pid: int, started: str) -> bool:
    """Whether that very process runs. False where the system does not tell when a process began: better no kill than a
    wrong one."""
    return bool(started) and lease.process_started(pid) == started


def signal_if(number: signal.Signals, pid: int, started: str) -> bool:
    """Send a signal to that very process, and SIGKILL to its group, too, if it leads a session; `kill_sessions` finds
    the rest. False if it has ended. PermissionError if it belongs to another user."""
    with _pinned(pid) as pin:
        if not is_alive(pid, started):
            return False
        leads = leads_session(pid)
        if pin is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(pin, number)
    if leads and number == signal.SIGKILL:
        _kill_group(pid)
    return True


def leads_session(pid: int) -> bool:
    return _session_of(pid) == pid


def kill_sessions(leaders: Collection[int]) -> None:
    """Kill every process of the sessions of these leaders. The leaders may have died, but a moment ago the numbers were
    theirs: while a session exists, no other process gets its number."""
    for leader in leaders:
        _kill_group(leader)
    for _ in range(_ROUNDS if leaders else 0):
        members = [pid for pid in _members(leaders) if pid != os.getpid()]
        if not members:
            return
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def has_open(pid: int, path: str) -> bool | None:
    """Whether a process has this very file open, which has no other name. None where the system does not tell.
    PermissionError if the process belongs to another user."""
    try:
        wanted = os.lstat(path)
        if wanted.st_nlink != 1:
            return False  # a second name would let one folder claim the file of another
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):  # it has just closed this one
                if os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), wanted):
                    return True
    except FileNotFoundError:
        return False if os.path.exists("/proc/self/fd") else None
    return False


def open_files(pid: int, end: str) -> set[str]:
    """The paths of the files that a process has open, of those whose path ends so, and without this end. Empty where
    the system does not tell."""
    found = set()
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # it has just closed this one
                path = os.readlink(f"/proc/{pid}/fd/{name}")
                if path.endswith(end):
                    found.add(path.removesuffix(end))
    return found


def parent(pid: int) -> int | None:
    """The parent process. None where the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return None


def reap_orphans(is_ours: Callable[[int], bool]) -> None:
    """Collect ended child processes that this process has not started. `is_ours` is called with each pid; it collects
    one that this process has started, and keeps its exit code."""
    with suppress(ChildProcessError):  # there are no more
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if not is_ours(ended.si_pid):
                os.waitpid(ended.si_pid, os.WNOHANG)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


@contextmanager
def _pinned(pid: int) -> Iterator[int | None]:
    """A descriptor for this process, also after its number went to another. None where there are none."""
    if not hasattr(os, "pidfd_open"):
        yield None
        return
    try:
        pin = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        yield pin
    finally:
        os.close(pin)


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _members(sessions: Collection[int]) -> Iterator[int]:
    """The living processes of these sessions, as far as /proc tells."""
    try:
        numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return
    for pid in numbers:
        if _session_of(pid) in sessions and lease.process_started(pid):
            yield pid
