"""Several scopes of one agent at once, each in a task of its own.

Each has its own copies of state and plan (live/data.py). After two attempts whose commits contradict others a scope
runs alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, TypeVar

from ..live import AgentStopped, Contradiction, Drain
from .open_scope import OpenScope

T = TypeVar("T")

_TOGETHER = 2
"""Attempts of a scope while others run."""

Begin = Callable[[], Awaitable[tuple[str, Coroutine[Any, Any, None]] | None]]
"""Begins the next scope: its key and its work. None if there is nothing to begin now."""


class Dismissed(BaseException):
    """This scope must end: a person's edit that waits is about it, or another scope has dropped its item.

    Its task was `cancelled` so many times."""

    def __init__(self, cancelled: int = 0):
        self.cancelled = cancelled


class ParallelScopes:
    """For one call of `each`, or for named scopes as long as any runs. On the agent's loop."""

    def __init__(self, drain: Drain):
        self._drain = drain
        self.named = 0  # named scopes that have begun and not ended; none for `each`
        self.over = asyncio.Event()  # none of them runs any more
        self.open: set[OpenScope] = set()  # running attempts
        self.highest_id = 0  # that an item has got in a scope's copy of the plan
        self.held: Collection[str] = ()  # what an edit that waits is about: scopes, and items that have not begun
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ended: list[str] = []
        self._is_closed = False
        self._news = asyncio.Event()
        self._unheld = asyncio.Event()
        self._door = asyncio.Lock()  # held while a scope enters, and by one that runs alone
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def keys(self) -> Collection[str]:
        """The scopes that have begun here and not ended, also those that wait for their next attempt."""
        return self._tasks.keys()

    def look_again(self) -> None:
        """No edit waits. There may be something new to begin."""
        self.held = ()
        self._unheld.set()
        self.wake()

    def wake(self) -> None:
        """There may be something new to begin."""
        self._news.set()

    def hold(self, about: Collection[str]) -> None:
        """A person's edit is about these scopes and items. Until it is taken nothing of them begins, and those that run
        come to an end."""
        self.held = about
        self._unheld.clear()
        self.dismiss(about)

    async def until_unheld(self, key: str) -> None:
        """Return when no edit waits that is about this scope."""
        while key in self.held:
            await self._unheld.wait()

    def close(self) -> None:
        """The agent has failed: let all scopes come to an end, and begin none again."""
        self._is_closed = True
        self.look_again()
        self.dismiss({scope.key for scope in self.open})

    @property
    def awaited(self) -> bool:
        """Whether the edit still has to wait for one of them."""
        return any(scope.key in self.held for scope in self.open)

    def dismiss(self, keys: Collection[str]) -> None:
        """Let the scopes with these keys come to an end: their running calls finish."""
        for scope in [scope for scope in self.open if scope.key in keys]:
            scope.dismiss()

    async def run(self, begin: Begin, most: int) -> BaseException | None:
        """Run what `begin` gives, up to `most` at once, until it gives nothing and all has ended. While there is room
        it is asked again when a scope has ended, and at each `wake`. After an error or a stop nothing more begins, but
        what runs comes to its end; then that error is returned."""
        error: BaseException | None = None
        try:
            while True:
                while error is None and len(self._tasks) < most:
                    self._news.clear()
                    try:
                        if (found := await begin()) is None:
                            break
                    except (Exception, AgentStopped) as failure:
                        error = failure
                        self._drain.still_waits()
                        break
                    self._begin(*found)
                if not self._tasks and (error is not None or not self.held):
                    return error
                await self._news.wait()
                self._news.clear()
                error = self._outcome(error)
        except BaseException:
            await self._cancel_all()
            raise

    def _begin(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[key] = asyncio.create_task(work, name=key)

        def ended(_: object) -> None:
            self._ended.append(key)
            self._news.set()

        task.add_done_callback(ended)

    def _outcome(self, error: BaseException | None) -> BaseException | None:
        """The first error so far. Raises one that must end the run at once."""
        ended, self._ended = self._ended, []
        for task in [self._tasks.pop(key) for key in ended]:
            failure = asyncio.CancelledError() if task.cancelled() else task.exception()
            if isinstance(failure, Dismissed):
                continue
            if failure is not None and not isinstance(failure, Exception | asyncio.CancelledError):
                raise failure
            error = error or failure
        return error

    async def _cancel_all(self) -> None:
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        while any(not task.done() for task in tasks):
            try:
                await asyncio.wait(tasks)
            except asyncio.CancelledError:  # told again, perhaps by force
                for task in tasks:
                    task.cancel()
        for task in tasks:
            if not task.cancelled():
                task.exception()  # it has been seen

    async def until_merged(self, key: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Enter a scope, and again as long as its commit contradicts one that was made meanwhile. Dismissed if an edit
        that waits is about it: it begins again when the edit was taken, if it is still to do."""
        for number in count(1):
            async with self._entered(alone=number > _TOGETHER):
                if self._is_closed or key in self.held:
                    raise Dismissed
                with suppress(Contradiction):
                    return await attempt()
        raise AssertionError("the count has no end")

    @asynccontextmanager
    async def _entered(self, *, alone: bool) -> AsyncIterator[None]:
        async with self._door:
            if alone:
                await self._empty.wait()
                yield
                return
            self._inside += 1
            self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()
