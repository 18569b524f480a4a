"""A cluster of Dask for tests: scheduler, workers and dispatchers, each a process that can be killed or frozen with all
that it has started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from servers import free_ports

_ELSEWHERE = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"')
"""What starts a process on a machine of another name, where the system lets us: a lease of such a machine says nothing
about whether its process is alive."""


def elsewhere(name: str) -> list[str]:
    if shutil.which("unshare") is None:
        return []
    words = [*_ELSEWHERE, name]
    return [] if subprocess.run([*words, "true"], capture_output=True, check=False).returncode else words


class Tree:
    """A process and all that it has started, also in sessions of their own."""

    def __init__(self, process: subprocess.Popen[Any]):
        self.process = process

    def all(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.process.pid)
            return [root, *root.children(recursive=True)]
        return []

    def send(self, number: signal.Signals) -> list[psutil.Process]:
        """To all, until no new one has come meanwhile. Returns them."""
        sent: list[psutil.Process] = []
        while new := [each for each in self.all() if each not in sent]:
            for each in new:
                with suppress(psutil.NoSuchProcess):
                    each.send_signal(number)
            sent += new
        return sent

    def freeze(self) -> list[psutil.Process]:
        return self.send(signal.SIGSTOP)

    def kill(self) -> None:
        frozen = self.freeze()  # so that nothing is started meanwhile, and nothing is told of a death
        for each in frozen:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.process.wait()


class Cluster:
    """`environment` is for the workers and dispatchers, such as that of a bucket."""

    def __init__(self, folder: Path, environment: dict[str, str] | None = None):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._environment = {**os.environ, "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False", **(environment or {})}
        (self.port,) = free_ports(1)
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler = self.start_scheduler()
        self.workers: list[Tree] = []
        self.dispatchers: list[Tree] = []
        self._count = 0

    def _started(self, name: str, words: list[str], *, is_elsewhere: bool = False) -> Tree:
        with open(self.folder / f"{name}.log", "ab") as log:
            started = subprocess.Popen(
                [*(elsewhere(name) if is_elsewhere else []), sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        return Tree(started)

    def start_scheduler(self) -> Tree:
        """At the port of the one before."""
        words = ["--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"]
        return self._started("scheduler", ["-m", "distributed.cli.dask_scheduler", *words])

    def start_worker(self, threads: int = 2, *words: str) -> Tree:
        self._count += 1
        words = ("--nthreads", str(threads), "--no-dashboard", "--memory-limit", "0", *words)
        where = ("--local-directory", str(self.folder / "dask"))
        name = f"worker-{self._count}"
        program = ["-m", "distributed.cli.dask_worker", self.address, *words, *where]
        self.workers.append(self._started(name, program, is_elsewhere=True))
        return self.workers[-1]

    def start_dispatcher(self, *words: str) -> Tree:
        program = ["-m", "satchel", "fleet", "--scheduler", self.address, "--json", *words]
        self.dispatchers.append(self._started(f"dispatcher-{len(self.dispatchers)}", program))
        return self.dispatchers[-1]

    def told(self, dispatcher: int = 0) -> str:
        return (self.folder / f"dispatcher-{dispatcher}.log").read_text()

    def end(self) -> None:
        for tree in [*self.dispatchers, *self.workers, self.scheduler]:
            if tree.process.poll() is None:
                tree.kill()
