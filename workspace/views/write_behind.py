"""Write-behind queue: synchronous on a disk, threaded on remote stores and where the loop has other work, ordered per
path.

Jobs for one path run in the order they were added; jobs for different paths run several at a time. A job waits until
the group of records that was being written when it was added is durable, because it may show these records.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ..store import Store

if TYPE_CHECKING:
    from concurrent.futures import Future

_THREADS = 8

Job = Callable[[], object]


class Behind(Protocol):
    """For one opened workspace. Used from its thread."""

    @property
    def is_idle(self) -> bool:
        """Whether the queue is empty."""

    on_idle: Callable[[], None] | None
    """Called, in any thread, when the queue becomes empty."""

    group: Callable[[], Future[None] | None]
    """The group of records that is being written, if there is one."""

    def do(self, path: str, job: Job) -> None:
        """Run `job`, which writes `path`, now or soon. Raises the error of an earlier job."""

    def wait(self) -> None:
        """Return when all jobs are done. Raises the error of a job."""

    def close(self) -> None: ...


class AtOnce:
    """Runs every job at once."""

    is_idle = True
    on_idle: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.group: Callable[[], Future[None] | None] = lambda: None  # there it is written at once

    def do(self, path: str, job: Job) -> None:
        job()

    def wait(self) -> None: ...

    def close(self) -> None: ...


class InThreads:
    def __init__(self, threads: int) -> None:
        from concurrent.futures import ThreadPoolExecutor  # most runs on a disk need none

        self.on_idle: Callable[[], None] | None = None
        self.group: Callable[[], Future[None] | None] = lambda: None
        self._threads = ThreadPoolExecutor(threads, "satchel-behind")
        self._last: dict[str, Future[None]] = {}  # by path
        self._lock = threading.Lock()  # of what follows
        self._under_way = 0
        self._failed: BaseException | None = None

    @property
    def is_idle(self) -> bool:
        return not self._under_way

    def do(self, path: str, job: Job) -> None:
        self._check()
        if self.is_idle:
            self._last.clear()
        before = self._last.get(path)
        with self._lock:
            self._under_way += 1
        try:
            self._last[path] = self._threads.submit(self._do, job, before, self.group())
        except RuntimeError:  # after the end
            with self._lock:
                self._under_way -= 1
            raise

    def wait(self) -> None:
        from concurrent.futures import wait

        while not self.is_idle:
            wait(list(self._last.values()))
        self._last.clear()
        self._check()

    def close(self) -> None:
        self._threads.shutdown(wait=True)

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _do(self, job: Job, before: Future[None] | None, group: Future[None] | None) -> None:
        from concurrent.futures import wait

        if before is not None:
            wait([before])  # begun already: threads take jobs in the order they came
        try:
            if group is not None:
                group.result()  # if that has failed, its results must not be shown
            job()
        except BaseException as error:
            self._failed = self._failed or error
        finally:
            with self._lock:
                self._under_way -= 1
                is_idle = not self._under_way
        if is_idle and (tell := self.on_idle) is not None:
            tell()


def behind(store: Store, *, in_thread: bool = False) -> Behind:
    """`in_thread`: the loop of the caller has other work, so it does not write to a disk either. One thread does, since
    folders come and go with their files."""
    return InThreads(_THREADS) if store.abilities.remote else InThreads(1) if in_thread else AtOnce()
