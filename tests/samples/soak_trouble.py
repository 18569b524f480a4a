"""What goes wrong in a round of the soak: a start that brings its trouble, in a process that counts what it opens."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satchel.workspace.store import Syscalls

PATIENCE = 60
_TICKS = {"write", "sync", "sync_data", "sync_folder", "rename", "link", "unlink", "open_new", "mkdir"}


@dataclass(frozen=True, slots=True)
class Trouble:
    what: str
    moment: int = -1  # never
    effect: str = ""


class TroubledSyscalls(Syscalls):
    """Brings the trouble when its moment comes. What another process has to do is asked for through `bell`."""

    def __init__(self, trouble: Trouble, folder: Path, bell: int):
        self.trouble, self.folder, self.bell, self.left = trouble, folder, bell, trouble.moment
        self.is_begun = False

    def __getattribute__(self, name: str) -> Any:
        if name in _TICKS:
            self.left -= 1
            if self.left == 0:
                self.bring()
        return object.__getattribute__(self, name)

    def bring(self) -> None:
        what = self.trouble.what
        if self.trouble.effect:
            return
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what in ("SIGTERM", "SIGINT"):
            os.kill(os.getpid(), signal.Signals[what])
        elif what == "pause.yaml":
            (self.folder / "pause.yaml").touch()
        else:
            os.write(self.bell, b"!")

    def write(self, fd: int, data: bytes) -> None:
        if self.trouble.effect and data.startswith(b'{"seq"'):
            lines = [json.loads(line) for line in data.splitlines()]
            kinds = {line["type"] for line in lines if line.get("step") == self.trouble.effect}
            if "step.completed" in kinds and self.left % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            self.is_begun = "step.started" in kinds and not self.left % 2
        Syscalls.write(self, fd, data)

    def sync_data(self, fd: int) -> None:
        Syscalls.sync_data(self, fd)
        if self.is_begun:
            os.kill(os.getpid(), signal.SIGKILL)


class CountedConnection(sqlite3.Connection):
    """Of the directory: says in a file that it was opened, and closed. So what the journal says is not all there is."""

    counts: Path

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.say("opened")

    def close(self) -> None:
        super().close()
        self.say("closed")

    def say(self, what: str) -> None:
        with self.counts.open("a") as file:
            file.write(f"{os.getpid()} {what}\n")


def count_connections(counts: Path) -> None:
    CountedConnection.counts, connect = counts, sqlite3.connect
    sqlite3.connect = lambda *args, **kwargs: connect(*args, factory=CountedConnection, **kwargs)


def forked(log: Path, work: Callable[[], int]) -> int:
    """Do it in a process of its own, which is killed if it hangs. Its number."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        signal.alarm(PATIENCE)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1), os.dup2(out, 2)
        code = work()
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
