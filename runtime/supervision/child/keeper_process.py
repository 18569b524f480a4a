"""The keeper of the runs that this process supervises: a process next to theirs, which outlives each of them.

This process holds the socket. So a keeper that has died is started again at the same address, and who asks meanwhile
only waits. If this process dies, the keeper reads what still arrives to its end, and then ends itself.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ....workspace.base import DEFINITION, SatchelError, UsageError
from ....workspace.store import Store
from .child import environment, interpreter

if TYPE_CHECKING:
    import socket

_BACKLOG = 512
_AGAIN = 1.0  # seconds between two starts
_NEEDS = ("aiohttp", "multidict", "yarl")


class KeeperProcess:
    """Started for the first run that wants one. Safe for threads: `serve` has one for each run in a bucket."""

    def __init__(self, say: Callable[[str], None]):
        """`say` is called when it has died."""
        self._say = say
        self._secret, self._providers = b"", dict[str, str]()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._lock = threading.Lock()  # one start at a time

    def variables(self, url: str) -> dict[str, str]:
        """The variables of the environment that lead the process of a run to it. UsageError if it can't be started."""
        from ...keeper import addresses

        with self._lock:
            if self._socket is None:
                self._open()
            assert self._socket is not None
            base = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        return addresses.environment(base, self._secret, url, self._providers)

    @property
    def pid(self) -> int | None:
        """Of its process, if there is one."""
        return self._process.pid if self._process is not None else None

    def look(self) -> None:
        """Start it again if it has died."""
        with self._lock:
            if self._process is None or self._process.poll() is None or time.monotonic() - self._began < _AGAIN:
                return
            self._say(f"the keeper (process {self._process.pid}) has died; it starts again")
            self._start()

    def close(self) -> None:
        """No run is left. It reads to their end the answers that a next start may ask for."""
        with self._lock:
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()
                threading.Thread(target=self._process.wait, name="satchel-keeper", daemon=True).start()
            if self._socket is not None:
                self._socket.close()
            self._process = self._socket = None

    def _open(self) -> None:
        import secrets
        import socket

        from ...keeper import addresses

        check_installed()
        self._secret, self._providers = secrets.token_bytes(32), addresses.real()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self._start()

    def _start(self) -> None:
        assert self._socket is not None
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        number = self._socket.fileno()
        self._process = subprocess.Popen(
            [*interpreter(), "keeper", "--socket", str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(number,),
            env=environment(),
        )
        self._began = time.monotonic()
        told = {"secret": self._secret.hex(), "providers": self._providers}
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has died already: `look` sees it
            self._process.stdin.write(json.dumps(told).encode() + b"\n")
            self._process.stdin.flush()


def check_installed() -> None:
    """UsageError without the packages of a keeper."""
    from importlib.util import find_spec

    if missing := [name for name in _NEEDS if find_spec(name) is None]:
        raise UsageError(
            f"a keeper needs {', '.join(missing)}", remedy="install it with `pip install 'satchel[keeper]'`"
        )


def wants_keeper(store: Store) -> bool:
    """Whether workspace.yaml asks for one. Only a file that has the word is parsed: that would delay each start."""
    with suppress(SatchelError, OSError):  # the start itself says what is wrong
        if b"keeper" in store.read(DEFINITION).data:
            from ....workspace.inspect import define

            return define(store).keeper
    return False
