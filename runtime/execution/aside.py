"""Work that blocks, such as an opening with its syncs: in a thread if the loop has other work, so that all else on it
goes on."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from contextvars import copy_context
from typing import TypeVar

from ...workspace.store import Store
from .start import Start

T = TypeVar("T")

_AT_ONCE = 1
"""On a disk: an opening computes as well as waits, and takes the interpreter from the loop for milliseconds."""

_of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = weakref.WeakKeyDictionary()


async def aside(start: Start, work: Callable[[], T]) -> T:
    """What `work` returns. See `to_its_end`."""
    if not start.shares_loop:
        return work()
    loop = asyncio.get_running_loop()
    return await to_its_end(loop.run_in_executor(_threads(loop, start.store), copy_context().run, work))


async def to_its_end(done: asyncio.Future[T]) -> T:
    """What `done` returns. If the task is cancelled meanwhile, the work goes on to its end, and the cancellation comes
    at the next place where the task waits, as it would after work in the loop."""
    task, is_cancelled = asyncio.current_task(), False
    assert task is not None
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError:
            task.uncancel()
            is_cancelled = True
    if is_cancelled:
        task.cancel()
    return done.result()


@asynccontextmanager
async def held_aside(start: Start, held: AbstractContextManager[T]) -> AsyncIterator[T]:
    """The same of what comes before and after a block."""
    found = await aside(start, held.__enter__)
    try:
        yield found
    except BaseException as error:
        raised = error  # the name of the clause is gone after it
        if not await aside(start, lambda: held.__exit__(type(raised), raised, raised.__traceback__)):
            raise
    else:
        await aside(start, lambda: held.__exit__(None, None, None))


def _threads(loop: asyncio.AbstractEventLoop, store: Store) -> ThreadPoolExecutor | None:
    """Of this loop, since a process that was forked has the threads of no other. None: those of the loop, for requests
    over a network, which only wait."""
    if store.abilities.remote:
        return None
    if loop not in _of_loops:
        _of_loops[loop] = ThreadPoolExecutor(_AT_ONCE, "satchel-opening")
    return _of_loops[loop]
