"""One resource of a run: its declaration, opening, check and release.

Each has a task of its own that enters and leaves it; blocking code runs in a thread of its own (`DaemonExecutor`). So
Satchel can stop waiting for any part of it, and a context is left in the task or thread that entered it. If a thread
hangs, the process ends without it.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from asyncio import tasks
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from contextvars import copy_context
from functools import partial as bind
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec import Struct

from ...workspace.base import UsageError

Tier = Literal["application", "infrastructure", "process"]

TIERS: tuple[Tier, ...] = ("application", "infrastructure", "process")
"""In the order of release."""

_GRACE = 1.0
"""Seconds that a cancelled task gets to end."""

T = TypeVar("T")

_Job = tuple[Callable[[], Any], "Future[Any]"]


class Resource(Struct, frozen=True):
    """Something that an agent needs while it runs. It is opened before the agent is called and released after it.

    `factory` is called without arguments, or with the run. It returns a context manager, sync or async, or an object,
    which is released with `aclose()` or `close()` if it has one. A function with `@contextmanager` or
    `@asynccontextmanager` is a factory, and so is a class. Sync factories are called in a thread; one that needs the
    event loop must be `async def`.

    `check` is called with the object: False, or an exception, means that it can't be used. `timeout` in seconds limits
    opening, check and release, each. Not guaranteed: that a thread that hangs ever ends.
    """

    name: str
    factory: Callable[..., Any]
    tier: Tier = "application"
    check: Callable[[Any], Any] | None = None
    timeout: float = 10.0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise UsageError("a resource needs a name", why=f"got {self.name!r}")
        if not callable(self.factory):
            raise UsageError(
                f"the resource {self.name!r} needs a function that makes it",
                why=f"got {self.factory!r}",
                remedy="wrap it: `lambda: ...`",
            )
        if self.tier not in TIERS:
            raise UsageError(
                f"the resource {self.name!r} has an unknown tier {self.tier!r}",
                remedy=f"the tiers are {', '.join(TIERS)}",
            )
        if not self.timeout > 0:
            raise UsageError(f"the resource {self.name!r} can't be opened in {self.timeout} s")


def check_resources(resources: Iterable[Resource]) -> tuple[Resource, ...]:
    """The resources that an agent declares. UsageError if one is not a resource, or two have the same name."""
    found = tuple(resources)
    for each in found:
        if not isinstance(each, Resource):
            raise UsageError(f"{each!r} is not a resource", remedy='write `resources=[Resource("db", connect)]`')
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two resources are called {name!r}")
    return found


class ResourceOutcome(NamedTuple):
    """The outcome of opening or releasing a resource."""

    outcome: Literal["ok", "failed", "timed_out"]
    why: str
    ms: int
    error: BaseException | None = None


class HeldResource:
    """A resource that is open or being opened. Used from one event loop."""

    def __init__(self, declared: Resource, make: Callable[[], Any], *, on_loop: bool):
        """`make` returns the context manager or object; it is called in a thread unless `on_loop`."""
        self.name, self.tier = declared.name, declared.tier
        self.object: Any = None
        self._declared, self._make, self._on_loop = declared, make, on_loop
        self._apart = DaemonExecutor(f"satchel-resource-{declared.name}")
        self._entered = asyncio.Event()
        self._leave = asyncio.Event()
        self._error: BaseException | None = None  # that ended its life
        self._life: asyncio.Task[None]

    @property
    def is_open(self) -> bool:
        return self._entered.is_set()

    async def open(self) -> ResourceOutcome:
        """Open and check it. `is_open` says whether it must be released. A BaseException that is not an Exception is
        raised; then nothing is open."""
        began, limit = time.monotonic(), self._declared.timeout
        self._life = asyncio.create_task(self._live(), name=f"resource {self.name}")
        opened = asyncio.create_task(self._entered.wait())
        try:
            await asyncio.wait([self._life, opened], timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await unhindered(self._give_up(limit))  # waits for it, so that it is not left half open
            raise
        finally:
            opened.cancel()
        if not self.is_open:
            if not self._life.done():
                await self._give_up(_GRACE)
                return _event("timed_out", began, f"it did not open within {limit:g} s")
            self._apart.end()
            error = self._error
            if error is not None and not isinstance(error, Exception | asyncio.CancelledError):
                raise error
            return _event("failed", began, _said(error), error)
        try:
            return await self._checked(began, limit)
        except BaseException:
            await unhindered(self.release())
            raise

    async def release(self) -> ResourceOutcome:
        """Release it. Raises only the cancellation of the caller."""
        began, limit = time.monotonic(), self._declared.timeout
        self._leave.set()
        try:
            await asyncio.wait([self._life], timeout=limit)
        finally:
            is_hanging = not self._life.done()
            if is_hanging:
                await self._give_up(0.0)
            self._apart.end()
        if is_hanging:
            return _event("timed_out", began, f"it was not released within {limit:g} s")
        if self._error is not None:
            return _event("failed", began, _said(self._error), self._error)
        return _event("ok", began)

    async def _live(self) -> None:
        try:
            await self._hold(await self._made())
        except BaseException as error:  # raised by the waiter; in a task it would end the loop
            self._error = error

    async def _made(self) -> Any:
        made = self._make() if self._on_loop else await self._apart.call(self._make, _close_if_possible)
        return made if _is_async(made) else await _awaited(made)  # an object that is both is entered, which awaits it

    async def _call(self, function: Callable[[], Any], on_loop: bool) -> Any:
        """The result of a user's function, sync or async."""
        return await _awaited(function() if on_loop else await self._apart.call(function))

    async def _hold(self, made: Any) -> None:
        """Enter it, wait for the release, and leave it."""
        kind = type(made)
        async with AsyncExitStack() as stack:
            if _is_async(made):
                self.object = await stack.enter_async_context(made)
            elif hasattr(kind, "__enter__") and not _is_transaction(made):
                leave = bind(kind.__exit__, made, None, None, None)
                self.object = await self._apart.call(bind(kind.__enter__, made), lambda _: leave())
                stack.push_async_callback(self._apart.call, leave)
            else:
                self.object = made
                stack.push_async_callback(self._close, made)
            self._entered.set()
            await self._leave.wait()

    async def _close(self, made: Any) -> None:
        aclose, close = getattr(made, "aclose", None), getattr(made, "close", None)
        if aclose is not None:
            await self._call(aclose, on_loop=True)
        elif close is not None:
            await self._call(close, self._on_loop or inspect.iscoroutinefunction(close))

    async def _checked(self, began: float, limit: float) -> ResourceOutcome:
        """Whether it can be used."""
        check = self._declared.check
        if check is None:
            return _event("ok", began)
        asked = asyncio.create_task(self._ask(check, began), name=f"check of {self.name}")
        try:
            await asyncio.wait([asked], timeout=limit)
        finally:
            if not asked.done():
                asked.cancel()
                await _left_alone(asked, _GRACE)
        if asked.cancelled() or not asked.done():
            return _event("timed_out", began, f"its check did not answer within {limit:g} s")
        event = asked.result()
        if event.error is not None and not isinstance(event.error, Exception):
            raise event.error
        return event

    async def _ask(self, check: Callable[[Any], Any], began: float) -> ResourceOutcome:
        try:
            found = await self._call(lambda: check(self.object), inspect.iscoroutinefunction(check))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # in a task it would end the loop
            return _event("failed", began, f"its check failed: {_said(error)}", error)
        if found is False:
            return _event("failed", began, "its check says that it is not healthy")
        return _event("ok", began)

    async def _give_up(self, wait: float) -> None:
        """Wait for the end of its task, `wait` seconds and a moment at most. If it opens something later, it closes
        that again."""
        self._life.cancel()
        try:
            await _left_alone(self._life, max(wait, _GRACE))
            if wait:
                await self._apart.idle(wait)
        finally:
            self._apart.end()


def runs_on_loop(factory: Callable[..., Any]) -> bool:
    """Whether a factory must be called on the event loop."""
    plain = inspect.unwrap(factory)
    if isinstance(factory, type):
        return hasattr(factory, "__aenter__")
    return inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain)


def takes_run(factory: Callable[..., Any]) -> bool:
    """Whether it needs an argument, which is then the run."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # some built-in ones tell nothing
        return False
    return any(
        parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters
    )


async def unhindered(ending: Coroutine[Any, Any, Any]) -> None:
    """Await something that ends by itself, even if the caller is cancelled: the run is already being left."""
    task = asyncio.create_task(ending)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    task.result()


def of_a_future(function: Callable[[], T]) -> Callable[[], T]:
    """The same for a thread that sets the result of a future. A future does not accept StopIteration, so its waiter
    would wait for ever."""

    def call() -> T:
        try:
            return function()
        except StopIteration as error:
            raise RuntimeError(f"StopIteration: {error}") from error

    return call


class DaemonExecutor:
    """A thread that runs one function after the other in the context of its maker. It starts with the first function.

    A process waits at its end for the threads of a ThreadPoolExecutor. This one is a daemon, so no process waits for
    it.
    """

    def __init__(self, name: str):
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: Thread | None = None

    async def call(self, function: Callable[[], T], undo: Callable[[T], Any] | None = None) -> T:
        """Call `function` in the thread and return its result. If the wait is cancelled, the function continues, and
        `undo` is called in the thread with its result."""
        made = self._submit(function)
        try:
            return await asyncio.wrap_future(made)
        except asyncio.CancelledError:
            if undo is not None:
                take_back = undo

                def late() -> None:
                    if not made.cancelled() and made.exception() is None:
                        take_back(made.result())

                self._submit(late)
            raise

    async def idle(self, at_most: float) -> bool:
        """Wait until nothing is left to do, at most `at_most` seconds. Returns whether that is so."""
        if self._thread is None:
            return True
        last = asyncio.wrap_future(self._submit(lambda: None))
        done, _ = await asyncio.wait([last], timeout=at_most)
        return bool(done)

    def end(self) -> None:
        """Let the thread end when its work is done."""
        self._jobs.put(None)

    def _submit(self, function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._jobs.put((function, future))
        if self._thread is None:
            context = copy_context()
            self._thread = Thread(target=context.run, args=(self._work,), name=self._name, daemon=True)
            self._thread.start()
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, future = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(of_a_future(function)())
            except BaseException as error:
                future.set_exception(error)


async def _left_alone(task: asyncio.Task[Any], wait: float) -> None:
    """Wait for a cancelled task. One that continues anyway must not delay the end of the loop."""
    await asyncio.wait([task], timeout=wait)
    if not task.done():
        tasks._unregister_task(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined]


async def _awaited(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


def _is_async(made: Any) -> bool:
    return hasattr(type(made), "__aenter__")


def _is_transaction(made: Any) -> bool:
    """A connection of sqlite3 is the context manager of a transaction, and stays open after it."""
    module = sys.modules.get("sqlite3")
    return module is not None and isinstance(made, module.Connection)


def _close_if_possible(made: Any) -> None:
    """The caller has stopped waiting for this. A context manager that was not entered need not be left."""
    close = getattr(made, "close", None)
    if close is not None and not inspect.iscoroutinefunction(close):
        with suppress(Exception):
            close()
    elif inspect.iscoroutine(made):
        made.close()


def _event(
    outcome: Literal["ok", "failed", "timed_out"], began: float, why: str = "", error: BaseException | None = None
) -> ResourceOutcome:
    return ResourceOutcome(outcome, why, int((time.monotonic() - began) * 1000), error)


def _said(error: BaseException | None) -> str:
    return "it ended by itself" if error is None else f"{type(error).__name__}: {error}".rstrip(": ")
