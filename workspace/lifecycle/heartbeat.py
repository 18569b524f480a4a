"""Heartbeats of a process that has a workspace without a lock: it writes its lease again and again.

They only decide when another process *tries* to take the workspace: after it has seen no heartbeat for the whole
time-to-live by its own clock. The journal's fences decide who has it. An owner that could not write in time begins no
effect until it could again, and has seen that no other process has it.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from msgspec.structs import replace

from ..base import LeaseHeld, SatchelError, StorageFailed, taken_over
from ..inspect import PATH, Lease, lease
from ..journal import check_newest
from ..store import FileChanged, Store

TTL_VARIABLE = "SATCHEL_LEASE_TTL"
_TTL = 30.0
_BEATS = 4  # in each time-to-live
_MARGIN = 0.9  # of it; a waiting process waits for the whole
_LOOKS = 8
_LAST_TRIES = 3  # to free the workspace
_PATIENCE = 2.0  # seconds for a heartbeat that is being written at the end


def ttl() -> float:
    """Seconds. The variable is for tests, which can't wait half a minute. A waiting process uses the holder's value."""
    return float(os.environ.get(TTL_VARIABLE) or _TTL)


def clock() -> float:
    """Seconds, including the time while the machine sleeps, where the system can count them."""
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)  # on this system it counts sleep, by its manual
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Heartbeat:
    """For one opened workspace."""

    def __init__(self, store: Store, lease: Lease, clock: Callable[[], float] = clock):
        self._store, self._lease, self._clock = store, lease, clock
        self._version = store.version(PATH)  # of one who had it before
        self._beaten = -math.inf
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="satchel-heartbeat", daemon=True)
        self.lost: SatchelError | None = None  # another process has it, or it is unknown

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """The workspace is free, unless another process has it. Tries again after a failed request, so that others need
        not wait for an ended process."""
        self._over.set()
        self._thread.join(_PATIENCE)
        if self._thread.is_alive() or self.lost is not None:
            return  # the storage can't be reached: others have to wait for the missing heartbeat
        for _ in range(_LAST_TRIES):
            if not self.is_in_time:
                return
            self._beat()  # a conditional write, because not every storage has conditional DELETEs
            if isinstance(self.lost, LeaseHeld):
                return
            if self.lost is None:
                with suppress(StorageFailed, FileChanged):
                    self._store.remove(PATH, if_version=self._version)
                    return
            self.lost = None

    def check(self) -> None:
        """LeaseHeld if another process has the workspace."""
        if self.lost is not None:
            raise self.lost

    @property
    def is_in_time(self) -> bool:
        """Whether no waiting process can have run out of patience."""
        return self._clock() - self._beaten < _MARGIN * self._lease.ttl

    def _beat_on(self) -> None:
        self._beat()
        while self.lost is None and not self._over.wait(self._lease.ttl / _BEATS if self.is_in_time else 0.05):
            self._beat()

    def _beat(self) -> None:
        began = self._clock()
        self._lease = replace(self._lease, beat=self._lease.beat + 1)
        try:
            try:
                data = lease.encode(self._lease)
                self._version = self._store.exchange(PATH, data, if_version=self._version).version
                self._beaten = began
            except FileChanged:
                self._look_who_has_it()
        except SatchelError as error:
            if self._over.is_set() or not self.is_in_time:
                self.lost = error
        except Exception as error:  # if the thread ended silently, its owner would wait for ever
            self.lost = StorageFailed("can't be written", path=PATH, why=f"{type(error).__name__}: {error}")

    def _look_who_has_it(self) -> None:
        """Another process has written or removed the file, or a late heartbeat of this one has arrived. Of two owners
        the later one has the workspace; one that has ended leaves no file, but its fence."""
        self._store.refresh()
        found = lease.read(self._store)
        is_mine = found is not None and replace(found, beat=self._lease.beat) == self._lease
        if found is not None and not is_mine and found.epoch >= self._lease.epoch:
            self.lost = taken_over(self._store.url, f"{found.process} since {found.since}")
            return
        self._version = self._store.version(PATH)
        try:
            check_newest(self._store, self._lease.epoch)
        except LeaseHeld as error:
            self.lost = error


def until_free(store: Store, clock: Callable[[], float] = clock) -> Iterator[tuple[float, Lease]]:
    """Seconds to wait before the next look, as long as it is unknown whether the holder is alive. Then the caller may
    try to take the workspace. LeaseHeld once a heartbeat is seen. A lock needs no wait."""
    if store.abilities.lock:
        return
    found = lease.read(store)
    if found is None or lease.has_died(found):
        return
    patience = found.ttl or _TTL
    seen, until = store.version(PATH), clock() + patience
    while (left := until - clock()) > 0:
        yield min(patience / _LOOKS, left), found
        store.refresh()
        version = store.version(PATH)
        if version is None:
            return
        if version != seen:
            raise LeaseHeld(
                "another process is running this workspace",
                path=store.url,
                why=f"{found.process} since {found.since}",
                remedy="wait until it ends, or stop it with `satchel pause --wait`",
            )
