"""Submit what is due below some roots to the workers of a cluster.

A dispatcher decides nothing about a run and remembers nothing that counts: it may be killed at any time, and several
may have the same roots. The key of a task is that of the folder, its files and its last opening. So two dispatchers
share one task, and a run that is due again is a new one.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike, fspath
from os.path import abspath
from typing import Any, Literal, cast

try:
    import distributed
except ImportError as error:
    raise ImportError(f"{__name__} needs Dask: pip install 'satchel[dask]'") from error

from satchel import UsageError, due
from satchel.results import Census, DueRun, FairOrder, ServeEvent

from .workers import ANSWER, NAME, REFUSED, TOPIC, UNSEEN, Workers, connect, run_here, stop_all

_TURN = 1.0  # seconds after which it turns, whatever comes
_FIRST, _LONGEST, _BUSY = 0.5, 60.0, 15.0  # seconds between two starts that came to nothing
_TRIES = 3  # starts that come to nothing, before `once` leaves a run
_STUCK = 90.0
"""Seconds after which a run that has begun and is due all the same is given up: its process is frozen, and its lease in
the bucket has ended. On a disk the lock keeps it from being due."""
_OUTCOMES = {0: "completed", 1: "failed", 2: "refused", 3: "paused", 4: "waiting", 5: "sleeping", 6: "busy"}
_OUTCOMES |= {7: "cancelled", 8: "storage"}
_SETTLED = (1, REFUSED)
"""Exit codes after which only another opening or another file makes a start worth while."""

Key = tuple[str, str, str, str]
"""The name, the URL of a run, what it is due by, and its group."""


@dataclass
class _Flight:
    """A run that was submitted."""

    run: DueRun
    root: str
    key: Key
    future: Any
    only: frozenset[str]  # the workers that may have it; empty: any
    began: float = 0.0  # since when it should have gone on, by time.monotonic; 0: no worker has begun it


@dataclass
class _Rest:
    """A run that has ended, until a later look says more, or a start may be worth while."""

    root: str
    looks: int  # of its root, up to its end
    key: str  # what it was due by
    tries: int  # starts after which it was due all the same
    until: float  # by time.monotonic


class Fleet:
    """Runs what is due below `roots`, folders or URLs, on the workers of `client`, a Client of Dask or the address of
    a scheduler. `isolate`: as for `satchel.serve`; the runs of a worker share processes of that worker.

    `at_most` runs at a time, by this dispatcher; None: as many as the workers have threads. `group_limits`: how many
    runs of a group of workspace.yaml run at a time on all workers, as for `satchel.serve`. `drain_timeout`: seconds
    that a stop waits for running work; None: as workspace.yaml says. `tell` is called on the loop with what happens, a
    `ServeEvent`; its folder is the address of a worker or scheduler if it is about that. `census` is kept current with
    the numbers of all runs. UsageError for wrong arguments. Nothing is read yet.
    """

    def __init__(
        self,
        client: distributed.Client | str,
        roots: str | PathLike[str] | Iterable[str | PathLike[str]],
        *,
        at_most: int | None = None,
        group_limits: Mapping[str, int] | None = None,
        isolate: Literal["process", "none"] | None = None,
        drain_timeout: float | None = None,
        tell: Callable[[ServeEvent], None] | None = None,
        census: Census | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ):
        self._roots = [fspath(root) for root in ([roots] if isinstance(roots, str | PathLike) else roots)]
        if not self._roots:
            raise UsageError("a fleet needs a root", remedy="name a folder or a URL")
        if at_most is not None and at_most < 1:
            raise UsageError(f"at_most can't be {at_most!r}", remedy="give a number from 1 on, or None")
        if drain_timeout is not None and drain_timeout < 0:
            raise UsageError(f"drain_timeout can't be {drain_timeout!r}", remedy="give seconds, or None")
        if isolate not in (None, "process", "none"):
            raise UsageError(f"isolate can't be {isolate!r}", remedy="use 'process' or 'none'")
        if not isinstance(client, str | distributed.Client):
            raise UsageError(
                f"client can't be of the type {type(client).__name__}", remedy="give a Client or an address"
            )
        self._address = client if isinstance(client, str) else client.scheduler.address
        self._security = None if isinstance(client, str) else client.security
        self._at_most, self._tell_all = at_most or math.inf, tell
        self._how = (drain_timeout, isolate)  # every run is started
        self._storage_options, self._census = storage_options, census
        self._order = FairOrder(group_limits)
        self._due: dict[str, dict[str, DueRun]] = {}  # by root and URL, as of its last look
        self._looks = dict.fromkeys(self._roots, 0)
        self._looks_before = dict.fromkeys(self._roots, 0)  # the last end of a run
        self._flying: dict[str, _Flight] = {}
        self._rests: dict[str, _Rest] = {}
        self._workers = Workers([root if "://" in root else abspath(root) for root in self._roots], self._tell)
        self._client: Any = None
        self._scheduler = ""  # which one that is: another one knows nothing
        self._bell: asyncio.Event
        self._stops: Literal["", "leaving", "draining"] = ""
        self._failed: BaseException | None = None
        self._told = ""

    async def run(self, *, once: bool = False) -> list[str]:
        """Until `stop`; with `once`, until nothing runs and nothing is due. Returns the folders of runs that are due
        and could not be started. Its end ends no run: those that were submitted go on on their workers.

        UsageError if the scheduler can't be reached at the beginning, if a root can't be looked at, or if no worker
        can have a run: it does not see a root, or has another version of Satchel. A scheduler that is lost later is
        waited for.
        """
        self._bell = asyncio.Event()
        try:
            self._client = await connect(self._address, self._security)
        except (OSError, TimeoutError, ValueError) as error:
            raise UsageError(
                "the scheduler can't be reached",
                path=self._address,
                why=str(error) or type(error).__name__,
                remedy="start it with `dask scheduler`, or try a fleet on this machine with `satchel fleet --local 2`",
            ) from None
        looks = [asyncio.create_task(self._look(root)) for root in self._roots]
        try:
            return await self._turns(once)
        finally:
            for each in looks:
                each.cancel()
            await asyncio.gather(*looks, return_exceptions=True)
            self._workers.forget()
            await self._client.close()

    def stop(self, *, runs: bool = False) -> None:
        """Submit nothing any more, and let `run` return. With `runs`, first stop all runs of all workers at their next
        safe point; these workers take no run any more: it is for a cluster that ends. Call it on the loop."""
        self._stops = "draining" if runs else "leaving"
        self._bell.set()

    # What is due

    async def _look(self, root: str) -> None:
        try:
            looks = due(root, tell=self._tell_all, census=self._census, storage_options=self._storage_options)
            async for look in looks:
                self._due[root] = {run.url: run for run in look.runs}
                self._looks[root] += 1
                for url, rest in [*self._rests.items()]:
                    if rest.root == root and url not in self._due[root] and self._looks[root] > rest.looks + 1:
                        del self._rests[url]
                self._bell.set()
        except Exception as error:
            self._failed = error
            self._bell.set()

    async def _is_nothing_due(self) -> bool:
        """After looks that leave nothing in doubt: a lease in a bucket may be left over."""
        for root in self._roots:
            async for look in due(root, once=True, storage_options=self._storage_options):
                if self._stops:
                    return False
                self._due[root] = {run.url: run for run in look.runs}
        return all(self._is_given_up(run) for run, _ in self._all_due())

    def _all_due(self) -> list[tuple[DueRun, str]]:
        """With their roots; those that have waited longest first."""
        found = {url: (run, root) for root, runs in self._due.items() for url, run in runs.items()}
        return sorted(found.values(), key=lambda each: (each[0].since, each[0].url))

    def _is_given_up(self, run: DueRun) -> bool:
        rest = self._rests.get(run.url)
        return rest is not None and (rest.tries >= _TRIES or (rest.key == run.key and rest.until == math.inf))

    # Turns

    async def _turns(self, once: bool) -> list[str]:
        has_asked = False
        while self._stops != "leaving" and not (has_asked and not self._flying):
            self._bell.clear()
            if (error := self._failed or self._workers.failed) is not None:
                raise error
            try:
                async with asyncio.timeout(ANSWER):
                    await self._see()
                    await self._take_in()
                    await self._drop_the_stuck()
                    if self._stops:
                        await self._client.run(stop_all, on_error="ignore")  # again and again: workers may come
                        has_asked = True
                    else:
                        await self._submit()
            except (OSError, TimeoutError):
                await self._reconnect()
                continue
            if once and self._is_idle() and await self._is_nothing_due():
                return [run.folder for run, _ in self._all_due()]
            with suppress(TimeoutError):
                await asyncio.wait_for(self._bell.wait(), _TURN)
        return []

    def _is_idle(self) -> bool:
        has_looked = all(self._looks[root] > self._looks_before[root] for root in self._roots)
        return has_looked and not self._flying and all(self._is_given_up(run) for run, _ in self._all_due())

    async def _reconnect(self) -> None:
        """A run that a worker still has is refused to the others, so all that is due may be submitted again."""
        self._tell_once("storage", "the scheduler does not answer; what is due is submitted again once it does")
        self._flying.clear()
        self._workers.forget()
        with suppress(Exception):
            await asyncio.wait_for(self._client.close(), ANSWER)
        while not self._stops:
            with suppress(OSError, TimeoutError):
                self._client = await connect(self._address, self._security)
                return

    async def _see(self) -> None:
        """The workers of now. Another scheduler at the same address knows nothing of this dispatcher."""
        facts = await self._client.scheduler.identity(n_workers=-1)
        if facts["id"] != self._scheduler:
            self._scheduler = facts["id"]
            self._workers.forget()
            self._client.subscribe_topic(TOPIC, self._heard)
        await self._workers.update(self._client, facts["workers"])

    def _heard(self, event: tuple[float, Any]) -> None:
        """A worker tells of a run."""
        told = event[1]
        flight = self._flying.get(told["folder"])
        if flight is not None:
            if told["kind"] == "started":
                flight.began = time.monotonic()
            self._tell(told["kind"], flight.run.folder, told["text"])

    # Runs

    async def _submit(self) -> None:
        wanted = [(run, root) for run, root in self._all_due() if self._may_start(run)]
        good = self._workers.good
        if wanted and not good and not self._workers.has_bad:
            self._tell_once("late", "there is no worker: start some with `dask worker`")
        if not wanted or not good:
            return
        self._told = ""
        processing = await self._client.processing()
        keys = {key for keys in processing.values() for key in keys} | {each.key for each in self._flying.values()}
        free = min(sum(good.values()) - len(keys), self._at_most - len(self._flying))
        only = frozenset(good) if self._workers.has_bad else frozenset[str]()
        groups = [key[3] for key in keys if key[0] == NAME]
        roots = {run.url: root for run, root in wanted}
        for run in self._order.choose((run for run, _ in wanted), groups, int(free)):
            self._fly(run, roots[run.url], only)

    def _may_start(self, run: DueRun) -> bool:
        rest = self._rests.get(run.url)
        if run.url in self._flying or rest is None:
            return run.url not in self._flying
        has_looked = self._looks[rest.root] > rest.looks
        return has_looked and (time.monotonic() >= rest.until or (rest.until == math.inf and rest.key != run.key))

    def _fly(self, run: DueRun, root: str, only: frozenset[str]) -> None:
        key = (NAME, run.url, run.key, run.group)
        future = self._client.submit(run_here, run.url, *self._how, key=key, workers=sorted(only) or None)
        distributed.fire_and_forget(future)  # it goes on without this dispatcher
        loop = asyncio.get_running_loop()

        def ring(_: object) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._bell.set)

        future.add_done_callback(ring)
        self._flying[run.url] = _Flight(run, root, key, future, only)

    async def _take_in(self) -> None:
        for flight in [*self._flying.values()]:
            status = flight.future.status
            if status == "pending":
                continue
            del self._flying[flight.run.url]
            self._looks_before = {**self._looks}
            if status == "finished":
                await self._has_ended(flight)
            elif status == "error":
                error = await flight.future.exception()
                self._rest(flight, None)
                self._tell("crashed", flight.run.folder, f"{type(error).__name__}: {error}")

    async def _has_ended(self, flight: _Flight) -> None:
        try:
            code, why, worker = await asyncio.wait_for(flight.future, ANSWER)
        except Exception:  # its worker has died since: the files tell
            return
        if code != UNSEEN:
            tries = self._rest(flight, code)
            if code != 6 or tries == 1:  # it is said once that another process has it
                self._tell(_OUTCOMES.get(code, "interrupted"), flight.run.folder, why)
        else:
            self._workers.refuse(worker, f"{why} there: that is on another machine, or not mounted")

    def _rest(self, flight: _Flight, code: int | None) -> int:
        """Returns how many of its starts in a row have come to nothing, with this one."""
        before = self._rests.get(flight.run.url)
        tries = before.tries + 1 if before else 1
        delay = math.inf if code in _SETTLED else min(_BUSY if code == 6 else _LONGEST, _FIRST * 2.0**tries)
        looks = self._looks[flight.root]
        self._rests[flight.run.url] = _Rest(flight.root, looks, flight.run.key, tries, time.monotonic() + delay)
        return tries

    async def _drop_the_stuck(self) -> None:
        """Runs whose workers are gone, and in a bucket those whose process does not go on: there another worker can
        take them over."""
        now = time.monotonic()
        for url, flight in [*self._flying.items()]:
            if flight.began and url not in self._due.get(flight.root, ()):
                flight.began = now
            is_stuck = bool(flight.began) and now > flight.began + _STUCK
            if is_stuck or (flight.only and not self._workers.are_there(flight.only)):
                del self._flying[url]
                await self._client.cancel([flight.future], force=True)
                if is_stuck:
                    self._tell("late", flight.run.folder, "its process does not go on; another worker takes it over")

    def _tell(self, kind: str, folder: str, text: str) -> None:
        if self._tell_all is not None:
            self._tell_all(ServeEvent(cast("Any", kind), folder, text))

    def _tell_once(self, kind: str, text: str) -> None:
        """As long as it is so."""
        if self._told != text:
            self._told = text
            self._tell(kind, self._address, text)
