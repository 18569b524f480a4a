"""Starts a supervisor that outlives the terminal, and waits until its run is at work or over."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from typing import IO

from ...workspace import lease
from ...workspace.store import Store
from .child import interpreter

LOG = ".satchel/run.log"
_LOG_LIMIT = 8 << 20  # bytes; a log that has grown beyond is put aside when the next one begins
_PATIENCE = 60.0  # seconds; code that takes longer to import is none of ours
_LOOK = 0.02
_TOLD = 20  # lines


@dataclass(frozen=True, slots=True)
class Background:
    """What became of it. `code` is None while it runs."""

    pid: int
    log: str
    code: int | None = None
    said: str = ""


def detach(store: Store, words: list[str]) -> Background:
    """Start `satchel WORDS` in a session of its own, which writes to the workspace's log."""
    log = os.path.join(store.url, LOG)
    with open_log(store) as output:
        begin = output.tell()
        process = subprocess.Popen(
            [*interpreter(), *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    give_up = time.monotonic() + _PATIENCE
    while time.monotonic() < give_up:
        if (code := process.poll()) is not None:
            return Background(process.pid, log, code, _said(log, begin))
        held = lease.read(store)
        if held and held.supervisor and held.supervisor.pid == process.pid:
            break
        time.sleep(_LOOK)
    process.returncode = 0  # it is nobody's child any more once this process has ended; no warning is due
    return Background(process.pid, log)


def open_log(store: Store) -> IO[bytes]:
    """The workspace's log, to append to."""
    store.append(LOG, b"")  # refuses what leads out of the workspace
    path = os.path.join(store.url, LOG)
    if os.path.getsize(path) > _LOG_LIMIT:
        os.replace(path, f"{path}.old")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    file = os.fdopen(fd, "ab")
    file.seek(0, os.SEEK_END)
    return file


def _said(log: str, begin: int) -> str:
    with open(log, "rb") as file:
        file.seek(begin)
        lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-_TOLD:])
