"""Code that waits is written once, as steps that yield the time to wait. It runs with or without an event loop."""

from __future__ import annotations

import threading
from collections.abc import Generator
from time import sleep
from typing import TypeVar

from ...workspace.base import UsageError, arguments

T = TypeVar("T")
Steps = Generator[float, None, T]
"""Yields seconds to wait, and returns the result."""


def check_main_thread(call: str, instead: str) -> None:
    """UsageError in another thread: only the main one can handle signals."""
    if threading.current_thread() is not threading.main_thread():
        raise UsageError(
            f"{call} can't be called in the thread {threading.current_thread().name!r}",
            why="it handles signals, which only the main thread can",
            remedy=f"call it in the main thread, or {instead}",
        )


def finish(method: str, steps: Steps[T]) -> T:
    """Run all steps in this thread. UsageError where an event loop is running, with the name of the `method`."""
    arguments.no_loop(method)
    return at_once(steps)


def at_once(steps: Steps[T]) -> T:
    """The same of steps that don't wait."""
    while True:
        try:
            pause = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        sleep(pause)


async def finish_async(steps: Steps[T]) -> T:
    """The same without blocking the event loop: each step runs in a thread. A cancellation takes effect between two
    steps; a running step finishes in its thread."""
    import asyncio  # most callers have no loop

    results: list[T] = []

    def step() -> float | None:
        try:
            return next(steps)
        except StopIteration as end:  # can't leave a thread
            results.append(end.value)
            return None

    while True:
        pause = await asyncio.to_thread(step)
        if pause is None:
            return results[0]
        await asyncio.sleep(pause)
