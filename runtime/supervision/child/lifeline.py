"""The child's end of its lifeline: a pipe that ends when the supervisor ends, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

from ....workspace.inspect import lease
from ...engine import uplink

_PR_SET_PDEATHSIG = 1


def begin(told: str) -> None:
    """Be the child of a supervisor: `told` is the value of `--supervised` (child.py)."""
    fd, up, supervisor, patience = told.split(",")
    uplink.hold(int(up), shares_slots=supervisor == "0")
    hold(int(fd), float(patience) if patience else None)
    if supervisor != "0":
        lease.supervised_by(int(supervisor))  # so that the lease says who would start this process again


def hold(fd: int, patience: float | None) -> None:
    """Stop this process, as SIGTERM does, when the last writer of `fd` is gone. Kill its group if that takes longer
    than `patience` (seconds; None: never).

    Programs that this process starts do not inherit `fd`. A byte in it says that the supervisor has already requested a
    stop: a second signal would force it.
    """
    os.set_inheritable(fd, False)
    _wake_at_its_death()
    threading.Thread(target=_listen, args=(fd, patience), name="satchel-lifeline", daemon=True).start()


def _wake_at_its_death() -> None:
    """If the supervisor dies while Ctrl-Z has stopped both, the system continues this process, which then notices."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def _listen(fd: int, patience: float | None) -> None:
    was_asked = False
    while os.read(fd, 64):
        was_asked = True
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGCONT)  # what this process has started was stopped with it
    if not was_asked:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    if patience is not None:
        time.sleep(patience)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
