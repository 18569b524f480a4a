"""Who starts a process, as records and files name a person."""

from __future__ import annotations

import os

from .textfile import visible


def myself() -> str:
    """The user of this process, and its machine: `you@laptop`."""
    import getpass  # slow, and few commands need it
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return visible(f"{user}@{socket.gethostname()}")
