"""Start one child process, learn how it ended, tell it to stop, and kill it; start a supervisor that outlives the
terminal; and the log that both write. Processes are identified for certain, and killed with all processes of their
session.

Signals come as bytes that a loop waits for: handlers do nothing else, and no signal is missed between two looks.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from threading import Thread
from typing import IO

from msgspec import Struct

from ...workspace.base import SatchelError, UsageError, slug, time_text
from ...workspace.inspect import lease
from ...workspace.store import FileChanged, Store, open_standard, read_if_there
from ..live import Word, release, supervisor_link

ASKED = (signal.SIGINT, signal.SIGTERM)
_HEARD = (*ASKED, signal.SIGCHLD, signal.SIGTSTP)


class Bell:
    """Rings when a signal to stop comes, when a child has ended, and at Ctrl-Z."""

    def __init__(self, reading: int):
        self._reading = reading

    def wait(self, seconds: float) -> list[signal.Signals]:
        """Wait until it rings, at most so long. Returns the signals since the last call, each as often as it came."""
        ready, _, _ = select.select([self._reading], [], [], max(0.0, seconds))
        came = os.read(self._reading, 4096) if ready else b""
        return [signal.Signals(number) for number in came]


@contextmanager
def listening() -> Iterator[Bell]:
    """SIGINT, SIGTERM, SIGCHLD and Ctrl-Z ring the bell while the body runs. Only in the main thread."""
    open_standard()  # children write there, and no pipe may have their numbers
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    ignored = {signal.SIGTSTP} if signal.getsignal(signal.SIGTSTP) is signal.SIG_IGN else set()
    before = {number: signal.signal(number, lambda *_: None) for number in _HEARD if number not in ignored}
    release()
    try:
        yield Bell(reading)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(reading)
        os.close(writing)


RESTARTS = 75
"""The exit code with which a child asks for another process, for its supervisor only."""

_IMPORTS = 60.0
"""Seconds that a child may take to import its agent before it must report."""

_TOKENS = ("SATCHEL_LISTEN_TOKEN", "SATCHEL_MCP_TOKEN", "SATCHEL_METRICS_TOKEN", "SATCHEL_PAGE_TOKEN")

FORCE_AFTER = 5.0
"""Seconds that a child gets after its drain timeout. If its loop runs, it forces the stop itself."""


class Child:
    """A `satchel run` in its own session, with a lifeline that ends when this process does."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        is_only: bool,
        patience: float | None,
        output: IO[bytes] | int | None,
        given: bytes | int,
        variables: Mapping[str, str] | None = None,
    ):
        """`words` are those of the command line, and `given` is what it can read from stdin, or its stdin. `is_only`:
        this process supervises no other child, and may be stopped with it. `patience` (seconds): how long it may
        drain if this process dies, until `may_drain_for` tells it otherwise; None: for ever. `output` is where
        it writes; None: where this process does. `variables` are added to its environment."""
        reading, self._lifeline = os.pipe()
        self._uplink, writing = os.pipe()
        os.set_blocking(self._uplink, False)
        held = signal.pthread_sigmask(signal.SIG_BLOCK, ASKED)  # the child begins so, until it can handle them
        try:
            supervised = f"{reading},{writing},{os.getpid() if is_only else 0},{'' if patience is None else patience}"
            with standard_input(given) as stdin:
                self._process = subprocess.Popen(
                    [*interpreter(), words[0], "--supervised", supervised, *words[1:]],
                    stdin=stdin,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    pass_fds=(reading, writing),
                    env={**environment(), **(variables or {})},
                )
        except BaseException:
            os.close(self._lifeline)
            os.close(self._uplink)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            os.close(reading)
            os.close(writing)
        self.pid, self._patience = self._process.pid, patience
        self._closing = threading.Lock()  # the pipes are closed once: `serve` polls in threads, and collects orphans
        self.last_word: Word | None = None
        self.rests = False  # its run has stopped, and it only waits for its notices
        self._began = time.monotonic()
        self._heard = 0.0  # when its loop has last reported; 0: not yet

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._began

    @property
    def has_died(self) -> bool:
        """The process has ended."""
        return self._process.returncode is not None

    def poll(self) -> int | None:
        """None while it runs; then its exit code, negative for the signal that it died of."""
        with self._closing:
            code = self._process.poll()
            if self._lifeline >= 0:
                self._listen()
            if code is not None and self._lifeline >= 0:
                os.close(self._uplink)
                os.close(self._lifeline)
                self._lifeline = -1
            return code

    def silent_for(self, now: float) -> float:
        """Seconds since its event loop last reported. While its code is being imported, it counts as silent only after
        a while."""
        return now - (self._heard or self._began + _IMPORTS)

    def _listen(self) -> None:
        heard = supervisor_link.read(self._uplink)
        if heard.is_alive:
            self._heard = time.monotonic()
        self.last_word = heard.word or self.last_word
        self.rests = self.rests if heard.rests is None else heard.rests

    def ask(self, number: signal.Signals) -> None:
        """Send it a signal."""
        with suppress(OSError):  # it has just ended
            os.write(self._lifeline, supervisor_link.WAS_ASKED)  # so that it does not take our death for another signal
        self._process.send_signal(number)

    def may_drain_for(self, patience: float | None) -> None:
        """How long it may drain if this process dies, in seconds; None: for ever."""
        if patience != self._patience:
            self._patience = patience
            with suppress(OSError):
                os.write(self._lifeline, supervisor_link.be_patient(patience))

    def freeze(self) -> None:
        """Stop it and its process group until `thaw`. Not by SIGTSTP, which a process without a terminal ignores."""
        with suppress(OSError):  # it has just ended
            os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self, seconds: float) -> None:
        """Continue it after so many seconds, in which it could not report."""
        self._began += seconds
        self._heard += seconds if self._heard else 0.0
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill it and the processes of its session."""
        kill_sessions([self.pid])

    kill_rest = kill
    """After its end: kill the processes that it has left in its session."""


def interpreter() -> list[str]:
    """The command that runs `satchel` like this process. The current folder is importable there only if it is here."""
    here = [""]
    with suppress(FileNotFoundError):  # it was removed, as by a deploy while `serve` goes on
        here.append(os.getcwd())
    is_safe = not sys.path or sys.path[0] not in here
    return [sys.executable, *(["-P"] if is_safe else []), "-m", "satchel"]


def environment() -> dict[str, str]:
    """The environment of this process, for a run: without the tokens of the servers of runs. Who has one can answer the
    questions of any run below the root."""
    return {name: value for name, value in os.environ.items() if name not in _TOKENS}


@contextmanager
def standard_input(data: bytes | int) -> Iterator[int]:
    """The stdin of a process that is started in the block: it reads `data` there. On its command line, `ps` would show
    that to all users of the machine. A number is a descriptor that it gets."""
    if not data or isinstance(data, int):
        yield data or subprocess.DEVNULL
        return
    reading, writing = os.pipe()
    try:
        yield reading
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)

    def write() -> None:
        with suppress(BrokenPipeError), open(writing, "wb") as pipe:  # it may end without having read all
            pipe.write(data)

    threading.Thread(target=write, daemon=True).start()  # a pipe holds some KiB only


def how_it_died(code: int) -> str:
    """`of SIGKILL`, `with exit code 86`."""
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"of {signal.Signals(-code).name}"
    except ValueError:
        return f"of signal {-code}"


# Processes, by their numbers

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


# A supervisor that outlives the terminal, and the log of a run

LOG = ".satchel/run.log"
_LOG_LIMIT = 8 << 20  # bytes of the log, and of what is kept of its past
_PATIENCE = 60.0  # seconds; only an agent's code takes longer to import
_LOOK = 0.02
_REMOTE_LOOK = 1.0
_TOLD = 20  # lines
_UPLOADS = 3  # tries
_MARK = "==== a process starts, {} ===="
_MARKED = re.compile(re.escape(_MARK).replace(r"\{\}", r"([0-9TZ:.-]{20,24})"))


class Background(Struct, frozen=True):
    """The outcome. `exit_code` is None while it runs."""

    pid: int
    log: str
    exit_code: int | None = None
    said: str = ""


def detach(store: Store, words: list[str], given: bytes = b"") -> Background:
    """Start `satchel WORDS` in a session of its own, which writes to the workspace's log. `given` is what it can read
    from stdin."""
    log = log_of(store)
    with open_log(store) as output, standard_input(given) as stdin:
        begin = output.tell()
        process = subprocess.Popen(
            [*interpreter(), *words],
            stdin=stdin,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=environment(),
        )
    give_up, looked_at = time.monotonic() + _PATIENCE, time.monotonic()
    while time.monotonic() < give_up:
        if (code := process.poll()) is not None:
            return Background(process.pid, log, code, _said(log, begin))
        if store.abilities.remote:
            if time.monotonic() < looked_at + _REMOTE_LOOK:
                time.sleep(_LOOK)
                continue
            store.refresh()
            looked_at = time.monotonic()
        held = lease.read(store)
        if held and held.supervisor and held.supervisor.pid == process.pid:
            break
        time.sleep(_LOOK)
    Thread(target=process.wait, daemon=True).start()  # a process that goes on must not keep a dead child for ever
    return Background(process.pid, log)


def log_of(store: Store) -> str:
    """In the workspace. For a workspace in a bucket on this machine, where its reader is."""
    if not store.abilities.remote:
        return os.path.join(store.url, LOG)
    import hashlib  # slow to import

    state = os.environ.get("XDG_STATE_HOME", "")
    above = state if os.path.isabs(state) else os.path.expanduser("~/.local/state")
    digest = hashlib.sha256(store.url.encode()).hexdigest()[:8]
    return os.path.join(above, "satchel", "log", f"{slug(store.url)}-{digest}.log")


def open_log(store: Store) -> IO[bytes]:
    """The workspace's log, to append to."""
    path = log_of(store)
    if store.abilities.remote:
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        except OSError as error:
            raise UsageError(
                "can't write a log",
                path=os.path.dirname(path),
                why=error.strerror,
                remedy="set XDG_STATE_HOME to a folder that you can write to",
            ) from error
    else:
        store.append(LOG, b"")  # refuses links out of the workspace, and sets the right owner
    bound_log(store)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    file = os.fdopen(fd, "ab")
    file.seek(0, os.SEEK_END)
    return file


def mark_start(store: Store, log: IO[bytes] | None) -> None:
    """Mark in the log that a process starts now, which will write to it: to `log`, or, if that is None, to where this
    process writes. That may be a terminal, and has no mark then."""
    with suppress(OSError, ValueError):  # a full disk must not stop a run over its log
        if log is None and not os.path.samestat(os.fstat(1), os.stat(log_of(store))):
            return
        if sys.stdout is not None:
            sys.stdout.flush()
        os.write(1 if log is None else log.fileno(), f"{_MARK.format(time_text(datetime.now(UTC)))}\n".encode())


def started_at(line: str) -> str:
    """The time in UTC of a line that marks the start of a process; empty for any other line."""
    found = _MARKED.fullmatch(line)
    return found[1] if found else ""


@contextmanager
def uploaded_log(store: Store) -> Iterator[None]:
    """Where the workspace is not on this machine, append what the body adds to its log to the one in the workspace,
    which has those of other machines. Not guaranteed: the storage may be away, or this process may die."""
    if not store.abilities.remote:
        yield
        return
    with open_log(store) as log:
        begin = log.tell()
    yield
    with suppress(SatchelError, OSError), open(log_of(store), "rb") as file:
        file.seek(begin if begin <= os.fstat(file.fileno()).st_size else 0)  # it may have been bounded
        _append_to_upload(store, file.read())


def _append_to_upload(store: Store, data: bytes) -> None:
    for _ in range(_UPLOADS if data else 0):
        store.refresh(os.path.dirname(LOG))
        there = read_if_there(store, LOG, limit=_LOG_LIMIT)
        with suppress(FileChanged, FileExistsError):  # by another machine, which has had the run meanwhile
            if there is None:
                store.create(LOG, data)
            else:
                store.replace(LOG, (there.data + data)[-_LOG_LIMIT:], if_version=there.version)
            return


def bound_log(store: Store) -> None:
    """If the workspace's log is larger than its limit, keep its end as `run.log.old` and start it again. Its writers
    append, so they need not know. Not guaranteed: a line that is written at this moment may be lost."""
    path = log_of(store)
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # there is none
    with os.fdopen(fd, "r+b") as file, suppress(OSError):  # a full disk must not stop a run over its log
        now = os.fstat(fd)
        size = now.st_size
        if size <= _LOG_LIMIT:
            return
        file.seek(size - _LOG_LIMIT)
        with open(f"{path}.new", "wb", opener=_private) as old:
            old.write(file.read())
            with suppress(PermissionError):  # a log of another user, in a folder that several share
                os.fchown(old.fileno(), now.st_uid, now.st_gid)
            os.fchmod(old.fileno(), now.st_mode & 0o777)
        os.replace(f"{path}.new", f"{path}.old")
        file.truncate(0)


def _private(path: str, flags: int) -> int:
    with suppress(FileNotFoundError):
        os.unlink(path)  # left by a crash, or a link
    return os.open(path, flags | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _said(log: str, begin: int) -> str:
    with open(log, "rb") as file:
        file.seek(begin)
        lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join([each for each in lines if not started_at(each)][-_TOLD:])
