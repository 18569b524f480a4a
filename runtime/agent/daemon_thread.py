"""Blocking code in a daemon thread. If it hangs, the process ends without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[Callable[[], Any], "Future[Any]"]


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
