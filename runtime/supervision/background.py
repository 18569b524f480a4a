"""Start a supervisor that outlives the terminal, and wait until its run is active or over; and the log of a run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from threading import Thread
from typing import IO

from msgspec import Struct

from ...workspace.base import SatchelError, UsageError, slug, time_text
from ...workspace.inspect import lease
from ...workspace.store import FileChanged, Store, read_if_there
from .child import environment, interpreter, standard_input

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
