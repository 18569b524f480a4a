"""`Pool`: many runs on the event loop of a program, a few at a time.

What is due, in which order, and when to try again is decided as `serve` decides it, in a thread of the pool. In place
of a process, a run gets a task of the loop. The folders are the queue: a run that the program has not come to is found
by the next pool, or by `satchel serve`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

from ...workspace.base import LeaseHeld, Refused, SatchelError, StorageFailed, UsageError, arguments, urls, visible
from ...workspace.inspect import define
from ...workspace.state import EXIT_CODES
from ...workspace.store import Store, open_store
from ..agent import Agent
from ..execution import Outcome, Start, running
from ..live import Interruption, supervisor_link
from ..status import Place, root_of
from ..supervision import NO_KEEPER, FairOrder, Known, ServeEvent, Server
from .runner import no_exit

_TURN = 1.0  # seconds after which it turns, whatever comes
_FAILED, _REFUSED, _BUSY, _STORAGE, _CUT_OFF = 1, 2, 6, 8, 130
_TROUBLE = frozenset(("failed", "refused", "storage", "damaged", "warned", "crashed", "interrupted"))

_LOG = logging.getLogger("satchel")


class Pool:
    """Keeps the runs below `root`, a folder or URL, running on the event loop of this program:
    `async with Pool(root) as pool`.

    It starts those that are new or were interrupted, also by the end of an earlier program, and continues those that
    were answered, released or have slept, as `satchel serve` does: at most `at_most` at a time, the highest priority
    first, then in the order in which they became due. `group_limits` are those of `satchel.serve`. `agent` replaces the
    one that each workspace.yaml names. An error of one run ends no other. Openings and syncs are done in threads, so
    the loop goes on.

    The end of the block drains: nothing new begins, each run stops at its next safe point and is paused, and the next
    pool continues it. `drain_timeout`: seconds that this waits for running work; without it, as workspace.yaml says. A
    cancellation during that interrupts running work. SIGTERM, unless the program handles it, cancels the block, which
    drains and ends without an error; so does the cancellation by Ctrl-C, which then goes on.

    `tell` is called on the loop with what happens to each run, a `ServeEvent`. Without it, the logger `satchel` gets a
    line: WARNING for runs that fail, are refused or damaged, else INFO.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        agent: Agent[..., Any] | None = None,
        *,
        at_most: int = 20,
        group_limits: Mapping[str, int] | None = None,
        drain_timeout: float | None = None,
        tell: Callable[[ServeEvent], None] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """UsageError for wrong arguments. Nothing is read yet."""
        self._typed = arguments.place("root", root)
        self._at_most = arguments.count("at_most", at_most, least=1)
        FairOrder(group_limits)  # checks them
        self._group_limits = group_limits
        self._drain_timeout = arguments.seconds("drain_timeout", drain_timeout)
        arguments.function("tell", tell)
        if agent is not None and not isinstance(agent, Agent):
            raise UsageError(f"agent can't be of the type {type(agent).__name__}", remedy="decorate it with @agent")
        self._agent, self._tell, self._storage_options = agent, tell or _log, storage_options
        self._state: Literal["made", "open", "draining", "over"] = "made"
        self._waiting: dict[str, list[asyncio.Future[Any]]] = {}  # by place, for starts that have not begun yet
        self._orders: queue.SimpleQueue[Callable[[Server], None]] = queue.SimpleQueue()
        self._bell = threading.Event()  # the thread has something to do
        self._asked = 0  # starts and waits, so that an idle pool is not one that has not seen the last of them
        self._is_signalled = False
        self._failed: BaseException | None = None  # of the thread
        self._loop: asyncio.AbstractEventLoop
        self._body: asyncio.Task[Any]
        self._cancelling: int  # cancellations of that task before the block
        self._over: asyncio.Event
        self._idle: asyncio.Event

    # The block

    async def __aenter__(self) -> Self:
        if self._state != "made":
            raise UsageError("a pool is used once", remedy="make another one: `async with satchel.Pool(root) as pool`")
        body = asyncio.current_task()
        assert body is not None
        self._loop, self._body, self._cancelling = asyncio.get_running_loop(), body, body.cancelling()
        self._over, self._idle = asyncio.Event(), asyncio.Event()
        server = await asyncio.to_thread(self._server)
        self._state = "open"
        self._listen()
        threading.Thread(target=self._work, args=(server,), name="satchel-pool", daemon=True).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        is_cancelled = False
        self._drain()
        while not self._over.is_set():
            try:
                await self._over.wait()
            except asyncio.CancelledError:
                is_cancelled = True
                self._order(lambda server: server.ask(signal.SIGTERM))  # the second one interrupts running work
        self._state = "over"
        if self._listens:
            self._loop.remove_signal_handler(signal.SIGTERM)
        for waiting in self._waiting.values():
            _settle(waiting, error=_ends())  # what was not started is left to the next pool
        self._waiting.clear()
        if self._failed is not None:
            raise self._failed
        if is_cancelled:
            raise asyncio.CancelledError
        was_ours = self._is_signalled and kind is not None and issubclass(kind, asyncio.CancelledError)
        return was_ours and self._body.uncancel() <= self._cancelling

    def _server(self) -> Server:
        store = root_of(self._typed, self._storage_options)
        self._root = os.path.realpath(self._typed) if store is None else store.url
        root = self._typed if store is None else store.url
        assert self._at_most is not None
        server = Server(
            root,
            self._at_most,
            partial(self._on_loop, self._tell),
            self._drain_timeout,
            store=store,
            make=self._going,
            group_limits=self._group_limits,
        )
        server.ignore_index()
        return server

    def _going(self, known: Known) -> _Going:
        definition = known.verdict.definition
        if definition is not None and definition.keeper and not _is_kept(known.store.url):
            warned = ServeEvent("warned", known.folder, f"{NO_KEEPER}; below `satchel serve` it has one")
            self._on_loop(self._tell, warned)
        return _Going(self, known.folder)

    def _listen(self) -> None:
        is_ours = threading.current_thread() is threading.main_thread()
        self._listens = is_ours and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._listens:
            self._loop.add_signal_handler(signal.SIGTERM, self._terminate)

    def _terminate(self) -> None:
        """SIGTERM has come. The block ends; a second one interrupts running work."""
        if self._state == "open":
            self._is_signalled = True
            self._drain()
            self._body.cancel()
        else:
            self._order(lambda server: server.ask(signal.SIGTERM))

    def _drain(self) -> None:
        if self._state == "open":
            self._state = "draining"
            self._order(lambda server: server.ask(signal.SIGTERM))

    # For the program

    async def start(self, workspace: str | os.PathLike[str]) -> asyncio.Future[Outcome[Any]]:
        """Start the run at `workspace`, a folder or URL below the root, as soon as there is a free place, without
        waiting for the next look. If it runs, it is started again at its end. A run that is paused, waits or sleeps
        stays as it is, as with every start.

        The result can be awaited, for how the run stops, as `satchel.run_async` returns it, or raises its error.
        Cancelling it stops only the waiting. Give the agent its input with `satchel.new`: there the run is never
        without it. Refused once the pool drains; UsageError for a place that is not a workspace below the root.
        """
        self._check_open()
        store = await asyncio.to_thread(self._store_below, arguments.place("workspace", workspace))
        self._check_open()  # since then
        waiting: asyncio.Future[Outcome[Any]] = self._loop.create_future()
        place = store.url
        self._waiting.setdefault(place, []).append(waiting)
        self._expect_more(lambda server: server.want(place, place))
        return waiting

    async def run(self, workspace: str | os.PathLike[str]) -> Outcome[Any]:
        """`start`, and wait for how the run stops."""
        return await (await self.start(workspace))

    async def wait(self) -> None:
        """Look at the root, and return when nothing runs and nothing is due. What sleeps, waits for a person, or is
        paused is not waited for."""
        self._check_open()
        self._expect_more(Server.look_soon)
        over = asyncio.ensure_future(self._over.wait())
        idle = asyncio.ensure_future(self._idle.wait())
        try:
            await asyncio.wait([over, idle], return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            idle.cancel()

    def _check_open(self) -> None:
        if self._state == "made":
            raise UsageError("the pool is not open", remedy="use it in `async with satchel.Pool(root) as pool`")
        if self._state != "open":
            raise _ends()

    def _store_below(self, typed: str) -> Store:
        """The store of a workspace that the pool can find again. UsageError for another place."""
        store = open_store(urls.checked(typed))
        if store.url != self._root and not store.url.startswith(f"{self._root.rstrip('/')}/"):
            raise UsageError(
                f"is not below the root of the pool, {visible(self._root)}",
                path=typed,
                why="no later pool would find it there",
                remedy="make the run below the root, or use a pool for its own root",
            )
        define(store)
        return store

    # The thread that decides

    def _work(self, server: Server) -> None:
        try:
            while True:
                self._bell.clear()
                asked = self._asked
                while not self._orders.empty():
                    self._orders.get()(server)
                server.turn()
                if server.is_idle:
                    if server.stops:
                        break
                    self._on_loop(self._is_idle, asked)
                self._bell.wait(max(0.0, min(server.wake_at - time.monotonic(), _TURN)))
        except BaseException as error:
            self._failed = error
        self._on_loop(self._end)

    def _is_idle(self, asked: int) -> None:
        if asked == self._asked:
            self._idle.set()

    def _end(self) -> None:
        self._over.set()
        if self._failed is not None and self._state == "open":
            self._body.cancel()  # nothing would start any more

    def _expect_more(self, order: Callable[[Server], None]) -> None:
        """The pool is idle no sooner than the thread has followed the order."""
        self._asked += 1
        self._idle.clear()
        self._order(order)

    def _order(self, order: Callable[[Server], None]) -> None:
        self._orders.put(order)
        self._bell.set()

    def _on_loop(self, call: Callable[..., Any], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended without the end of the block
            self._loop.call_soon_threadsafe(call, *args)


class _Going:
    """A start of one run, as a task of the loop. Made and polled in the thread of the pool."""

    def __init__(self, pool: Pool, folder: str):
        self._pool, self._folder = pool, folder
        self._interruption = Interruption()
        self._task: asyncio.Task[None]  # the loop keeps only weak references to its tasks
        self.code: int | None = None
        self.why = self.error = ""
        self.rests = False

    wake_at = float("inf")  # its end rings the bell

    def start(self) -> None:
        self._store = open_store(self._folder)  # its own, since the thread looks at the other one
        self._pool._on_loop(self._create)

    def poll(self) -> None: ...

    def ask(self, number: signal.Signals) -> None:
        self._pool._on_loop(self._interruption.come, number.name)

    def _rest(self, rests: bool) -> None:
        self.rests = rests
        self._pool._bell.set()

    def _create(self) -> None:
        waiting = self._pool._waiting.pop(self._store.url, [])
        self._task = self._pool._loop.create_task(self._run(waiting), name=f"satchel-run {self._folder}")

    async def _run(self, waiting: list[asyncio.Future[Any]]) -> None:
        supervisor_link.take_turns()
        code = _CUT_OFF
        try:
            start = Start(
                store=self._store,
                interruption=self._interruption,
                agent=self._pool._agent,
                drain_timeout=self._pool._drain_timeout,
                shares_loop=True,
                rest=self._rest,
            )
            with no_exit(Place(self._store, self._folder)):
                outcome = (await running.until_stop(start)).outcome
            code = EXIT_CODES[outcome.status]
            _settle(waiting, outcome)
        except Exception as error:
            code = _code_of(error)
            self.error = str(error) if isinstance(error, SatchelError) else f"{type(error).__name__}: {error}"
            _settle(waiting, error=error)
        finally:
            _settle(waiting, error=_ends())  # if its task was cancelled
            self.code = code
            self._pool._bell.set()


def _is_kept(url: str) -> bool:
    """Whether this program was started below a keeper for the run."""
    from ..keeper import address_of  # most runs want none

    return bool(address_of(url))


def _code_of(error: Exception) -> int:
    if isinstance(error, LeaseHeld):
        return _BUSY
    if isinstance(error, StorageFailed | OSError):
        return _STORAGE
    return _REFUSED if isinstance(error, SatchelError) else _FAILED


def _settle(
    waiting: list[asyncio.Future[Any]], outcome: Outcome[Any] | None = None, error: BaseException | None = None
) -> None:
    """Tell those who still wait."""
    for each in waiting:
        if each.done():
            continue
        if error is None:
            each.set_result(outcome)
        else:
            each.set_exception(error)
            each.exception()  # `tell` has reported it, whether or not anybody waits


def _ends() -> Refused:
    return Refused(
        "the pool ends, and begins nothing any more", remedy="the next pool, or `satchel serve`, starts what is due"
    )


def _log(event: ServeEvent) -> None:
    level = logging.WARNING if event.kind in _TROUBLE else logging.INFO
    _LOG.log(level, "%s: %s%s", visible(event.folder), event.kind, f": {visible(event.text)}" if event.text else "")
