"""Runs several threads of real code one at a time, in an order that a seed decides.

A thread goes on until it comes to a point: a request, a lock, a pause. There the next one is chosen, which may be the
same. Time is simulated: it goes on only while everybody waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

_LONGEST = 6000  # points of one schedule; who is still going on then is killed


class Killed(BaseException):
    """In every thread of a process that was killed: it does nothing more, not even on its way out."""


class Process:
    """What is killed as a whole."""

    def __init__(self, name: str):
        self.name = name
        self.is_dead = False


class Actor:
    """A thread of a process."""

    def __init__(self, process: Process, name: str, body: Callable[[], None]):
        self.process, self.name, self.body = process, name, body
        self.wake = 0.0  # does not go on before
        self.ready: Callable[[], bool] | None = None  # nor before this holds
        self.gate = threading.Lock()
        self.gate.acquire()


class Simulation:
    """One schedule."""

    def __init__(self, seed: int):
        self.seed = seed
        self.random = Random(seed)
        self.time = 0.0
        self.trail: list[str] = []
        self.error: BaseException | None = None  # the first that a body has raised
        self._switching = self.random.choice((0.05, 0.15, 0.4))  # a schedule has a temper
        self._actors: list[Actor] = []
        self._current: Actor | None = None
        self._ended = threading.Semaphore(0)
        self._points = 0

    def note(self, text: str) -> None:
        name = self._current.name if self._current else "-"
        self.trail.append(f"{self.time:7.1f}  {name:10} {text}")

    def chance(self, likelihood: float) -> bool:
        return self.random.random() < likelihood

    def begin(self, process: Process, name: str, body: Callable[[], None]) -> Actor:
        actor = Actor(process, name, body)
        self._actors.append(actor)
        _threads.do(lambda: self._play(actor))
        return actor

    def run(self) -> None:
        """Return when nobody goes on any more."""
        if self._actors:
            self._current = self._next()
            self._current.gate.release()
            self._ended.acquire()
            self._current = None

    @property
    def process(self) -> Process | None:
        """Whose thread goes on. None outside a schedule."""
        return self._current.process if self._current else None

    def point(self) -> None:
        """Others may go on before this returns."""
        actor = self._current
        if actor is None:
            return
        self._points += 1
        if self._points > _LONGEST:
            for each in self._actors:
                each.process.is_dead = True
        if not actor.process.is_dead:
            self._give_way(actor)
        if actor.process.is_dead:
            raise Killed

    def sleep(self, seconds: float) -> None:
        if self._current is not None:
            self._current.wake = self.time + seconds
            self.point()

    def until(self, ready: Callable[[], bool]) -> None:
        """Wait for others."""
        actor = self._current
        while not ready():
            assert actor is not None, "nobody else goes on"
            actor.ready = ready
            try:
                self.point()
            finally:
                actor.ready = None

    def _give_way(self, actor: Actor) -> None:
        chosen = self._next(actor)
        if chosen is not actor:
            self._current = chosen
            chosen.gate.release()
            actor.gate.acquire()

    def _next(self, now: Actor | None = None) -> Actor:
        if now is not None and self._can_go_on(now) and not self.chance(self._switching):
            return now
        able = [actor for actor in self._actors if self._can_go_on(actor)]
        if not able:
            asleep = [actor.wake for actor in self._actors if actor.ready is None and actor.wake > self.time]
            if asleep:
                self.time = min(asleep)
            else:  # all wait for one another
                self.error = self.error or AssertionError("everybody waits for somebody else")
                for actor in self._actors:
                    actor.process.is_dead = True
            able = [actor for actor in self._actors if self._can_go_on(actor)]
        return able[int(self.random.random() * len(able))]

    def _can_go_on(self, actor: Actor) -> bool:
        if actor.process.is_dead:
            return True  # to its end
        return actor.wake <= self.time and (actor.ready is None or actor.ready())

    def _play(self, actor: Actor) -> None:
        actor.gate.acquire()
        try:
            if not actor.process.is_dead:
                actor.body()
        except Killed:
            pass
        except BaseException as error:
            self.error = self.error or error
            for each in self._actors:
                each.process.is_dead = True
        finally:
            self._actors.remove(actor)
            if self._actors:
                self._current = self._next()
                self._current.gate.release()
            else:
                self._ended.release()


class SimulatedLock:
    """A lock that is held across requests, as far as code uses one."""

    def __init__(self, simulation: Simulation):
        self._simulation = simulation
        self._is_held = False

    def __enter__(self) -> None:
        self._simulation.until(lambda: not self._is_held)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False


class _Promise(Future[T]):
    """One whose result is waited for within the schedule."""

    pool: SimulatedPool

    def result(self, timeout: float | None = None) -> T:
        self.pool.help(self)
        return super().result(timeout)


class SimulatedPool:
    """A ThreadPoolExecutor with few threads, which are actors for as long as there is work.

    A `shared` one leaves most of its work to whoever waits for it, who has nothing else to do: that is the same
    schedule, and much faster.
    """

    def __init__(self, simulation: Simulation, name: str, *, threads: int = 1, shared: bool = False):
        self._simulation, self._name = simulation, name
        self._threads, self._shared = threads, shared
        process = simulation.process
        assert process is not None
        self._process = process
        self._jobs: list[tuple[_Promise[Any], Callable[[], Any]]] = []
        self._at_work = 0

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        promise: _Promise[T] = _Promise()
        promise.pool = self
        self._jobs.append((promise, lambda: function(*arguments)))
        if self._at_work < self._threads and not (self._shared and self._simulation.chance(0.8)):
            self._at_work += 1
            self._simulation.begin(self._process, self._name, self._work)
        return promise

    def help(self, promise: Future[Any]) -> None:
        """Return when it is done."""
        if not self._at_work and not promise.done():
            self._at_work += 1
            self._work()
        self._simulation.until(promise.done)

    def shutdown(self, wait: bool = True) -> None:
        if wait:
            self._simulation.until(lambda: not self._at_work)

    def _work(self) -> None:
        while self._jobs:
            promise, job = self._jobs.pop(0)
            try:
                promise.set_result(job())
            except Killed:
                raise
            except BaseException as error:
                promise.set_exception(error)
        self._at_work -= 1


def wait_for(futures: Sequence[Future[Any]]) -> None:
    """As `concurrent.futures.wait`."""
    for future in futures:
        assert isinstance(future, _Promise)
        future.pool.help(future)


class _Threads:
    """Threads that are used again by the next schedule: making one costs more than most schedules."""

    def __init__(self) -> None:
        self._idle: list[_Thread] = []
        self._lock = threading.Lock()  # of the list

    def do(self, job: Callable[[], None]) -> None:
        with self._lock:
            thread = self._idle.pop() if self._idle else _Thread(self._idle)
        thread.job = job
        thread.told.release()


class _Thread(threading.Thread):
    def __init__(self, idle: list[_Thread]):
        super().__init__(daemon=True)
        self.told = threading.Semaphore(0)
        self.job: Callable[[], None] = lambda: None
        self._idle_ones = idle
        self.start()

    def run(self) -> None:
        while True:
            self.told.acquire()
            self.job()
            self._idle_ones.append(self)


_threads = _Threads()
