"""The child's end of its lifeline: a pipe that ends when the supervisor does, however it ends."""

from __future__ import annotations

import os
import signal
import threading
import time

from ...workspace import lease


def hold(fd: int, patience: float | None) -> None:
    """Stop this process, as SIGTERM does, when the last writer of `fd` is gone; kill its group if that takes longer
    than `patience` (seconds; None: never).

    `fd` is kept from the programs that this process starts. A byte in it says that the supervisor has asked for a
    stop already: a second signal would force it.
    """
    os.set_inheritable(fd, False)
    threading.Thread(target=_listen, args=(fd, patience), name="satchel-lifeline", daemon=True).start()


def name_supervisor(pid: int) -> None:
    """Let the lease say who would start this process again."""
    lease.supervised_by(pid)


def _listen(fd: int, patience: float | None) -> None:
    was_asked = False
    while os.read(fd, 64):
        was_asked = True
    if not was_asked:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    if patience is not None:
        time.sleep(patience)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
