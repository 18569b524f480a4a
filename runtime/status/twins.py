"""A method that waits, written once: the one that blocks, and its twin for an event loop.

`pause` and `pause_async` have the same parameters and the same result. A class says so in two lines:

    @in_steps
    def pause(self, *, reason: str = "manual") -> Steps[PauseResult]: ...

    pause_async = pause.without_blocking

How the method waits is said by its decorator. `in_steps`: it yields the time to wait. `in_a_thread`: it blocks.
`in_both_ways`: it has a way of its own for each, as a run has, which needs a loop itself. The method that blocks is
refused where an event loop is running, and names its twin.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator
from time import sleep
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from ...workspace.base import arguments

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Steps = Generator[float, None, T]
"""Yields seconds to wait, and returns the result."""


class Execution(Protocol[T_co]):
    """Work that an event loop does in another way than a thread."""

    def blocking(self) -> T_co: ...

    async def without_blocking(self) -> T_co: ...


class Method(Generic[S, P, T]):
    """A function as a method, which it is by itself at run time. Type checkers must see that an object binds it."""

    def __init__(self, function: Callable[Concatenate[S, P], T]):
        self._function = function

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type) -> Callable[Concatenate[S, P], T]: ...

        @overload
        def __get__(self, instance: S, owner: type) -> Callable[P, T]: ...

        def __get__(self, instance: S | None, owner: type) -> Callable[..., T]: ...

    def __set_name__(self, owner: type, name: str) -> None:
        setattr(owner, name, self._function)  # the class has the function itself, as mocks of it expect


class Twin(Method[S, P, T]):
    """A method that blocks; `without_blocking` is its twin."""

    def __init__(
        self,
        verb: Callable[Concatenate[S, P], Any],
        block: Callable[Concatenate[S, P], T],
        for_a_loop: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
        *,
        said: str = "",
    ):
        """`verb` has the name, the parameters and the docstring of both, and returns the result or, as `block` and
        `for_a_loop` do not, something that waits for it. `said`: what the docstring of the twin adds."""
        names = verb.__annotations__
        names["return"] = names["return"].removeprefix("Steps[").removeprefix("Execution[").removesuffix("]")
        super().__init__(functools.wraps(verb)(block))
        twin = functools.wraps(verb)(for_a_loop)
        twin.__name__, twin.__qualname__ = f"{verb.__name__}_async", f"{verb.__qualname__}_async"
        progress = " `progress` is called in a thread." if "progress" in names else ""
        twin.__doc__ = f"`{verb.__name__}`, without blocking the event loop.{progress}{said}"
        self.without_blocking = Method(twin)


def in_steps(verb: Callable[Concatenate[S, P], Steps[T]]) -> Twin[S, P, T]:
    """The method waits in steps. If it has the parameter `wait`, it waits only if that is true."""
    waits = (verb.__kwdefaults__ or {}).get("wait", True)

    def block(self: S, /, *args: P.args, **named: P.kwargs) -> T:
        if named.get("wait", waits):
            arguments.no_loop(verb.__name__)
        return at_once(verb(self, *args, **named))

    async def for_a_loop(self: S, /, *args: P.args, **named: P.kwargs) -> T:
        return await _in_threads(verb(self, *args, **named))

    return Twin(verb, block, for_a_loop)


def in_a_thread(verb: Callable[Concatenate[S, P], T]) -> Twin[S, P, T]:
    """The method blocks. Its twin runs it in a thread."""

    def block(self: S, /, *args: P.args, **named: P.kwargs) -> T:
        arguments.no_loop(verb.__name__)
        return verb(self, *args, **named)

    return Twin(verb, block, threaded(verb), said=" A cancellation does not stop it; it continues in its thread.")


def threaded(verb: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The method for an event loop: it runs in a thread."""

    @functools.wraps(verb)
    async def for_a_loop(self: S, /, *args: P.args, **named: P.kwargs) -> T:
        import asyncio  # most callers have no loop

        return await asyncio.to_thread(verb, self, *args, **named)

    return for_a_loop


def in_both_ways(verb: Callable[Concatenate[S, P], Execution[T]]) -> Twin[S, P, T]:
    """The method returns an execution of a run."""

    def block(self: S, /, *args: P.args, **named: P.kwargs) -> T:
        arguments.no_loop(verb.__name__)
        return verb(self, *args, **named).blocking()

    async def for_a_loop(self: S, /, *args: P.args, **named: P.kwargs) -> T:
        return await verb(self, *args, **named).without_blocking()

    return Twin(verb, block, for_a_loop, said=" If the task is cancelled, the run is paused, with everything written.")


def at_once(steps: Steps[T]) -> T:
    """Run all steps in this thread."""
    while True:
        try:
            pause = next(steps)
        except StopIteration as end:
            return cast(T, end.value)
        sleep(pause)


async def _in_threads(steps: Steps[T]) -> T:
    """Run each step in a thread. A cancellation takes effect between two steps; a running step finishes in its
    thread."""
    import asyncio

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
