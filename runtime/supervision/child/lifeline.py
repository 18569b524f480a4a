"""The lifeline of a child: a pipe that ends when the supervisor ends, however it ends. Its content is lines."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from ....workspace.inspect import lease
from ...live import supervisor_link

WAS_ASKED = b"!\n"
"""The supervisor has already requested a stop: a second signal would force it."""

_PR_SET_PDEATHSIG = 1


def be_patient(seconds: float | None) -> bytes:
    """The line that says how long the child may drain after the end of the supervisor. None: for ever."""
    return b"\n" if seconds is None else f"{seconds}\n".encode()


# In the child


def begin(told: str) -> None:
    """Be the child of a supervisor: `told` is the value of `--supervised` (child.py)."""
    fd, up, supervisor, patience = told.split(",")
    supervisor_link.hold(int(up), shares_slots=supervisor == "0")
    hold(int(fd), float(patience) if patience else None)
    if supervisor != "0":
        lease.supervised_by(int(supervisor))  # so that the lease says who would start this process again


def hold(fd: int, patience: float | None) -> None:
    """Stop this process, as SIGTERM does, when the last writer of `fd` is gone. Kill its group if that takes longer
    than `patience` (seconds; None: never), or than a line of `fd` says.

    Programs that this process starts do not inherit `fd`.
    """
    os.set_inheritable(fd, False)
    _wake_at_its_death()
    threading.Thread(target=_listen, args=(fd, patience), name="satchel-lifeline", daemon=True).start()


def _wake_at_its_death() -> None:
    """If the supervisor dies while Ctrl-Z has stopped both, the system continues this process, which then notices."""
    if sys.platform == "linux":
        import ctypes  # slow, and a supervisor needs none of it

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def _listen(fd: int, patience: float | None) -> None:
    was_asked = False
    with open(fd, "rb", 0) as lines:
        for line in lines:
            if line == WAS_ASKED:
                was_asked = True
            else:
                patience = float(line) if line.strip() else None
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGCONT)  # what this process has started was stopped with it
    if not was_asked:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    if patience is not None:
        time.sleep(patience)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
