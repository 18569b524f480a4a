"""A workspace as a person named it; its storage; and waiting for it.

A workspace may be taken once no person is saving a file in it and its holder has gone. Options of the storage behind a
URL have the names of fsspec. They go into the environment, where fsspec reads them. So started processes have them too,
and they are in no command line.

A method that waits is written once. `pause` and `pause_async` have the same parameters and the same result; a class
says so in two lines:

    @in_steps
    def pause(self, *, reason: str = "manual") -> Steps[PauseResult]: ...

    pause_async = pause.without_blocking

How the method waits is said by its decorator. `in_steps`: it yields the time to wait. `in_a_thread`: it blocks.
`in_both_ways`: it has a way of its own for each, as a run has, which needs a loop itself. The method that blocks is
refused where an event loop is running, and names its twin.
"""

from __future__ import annotations

import functools
import json
import math
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Mapping
from time import sleep
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from ...workspace.base import LeaseHeld, NoWorkspace, UsageError, arguments, since, urls, visible
from ...workspace.inspect import Lease, lease
from ...workspace.store import Store, open_store

PATIENCE = 12.0
"""Seconds during which a request to a bucket is repeated, except in a run."""

REMOTE_LOOK = 1.5
"""Seconds between two looks at a workspace in a bucket, where each look costs requests."""

_FRESH = 10.0


def check_main_thread(call: str, instead: str) -> None:
    """UsageError in another thread: only the main one can handle signals."""
    if threading.current_thread() is not threading.main_thread():
        raise UsageError(
            f"{call} can't be called in the thread {threading.current_thread().name!r}",
            why="it handles signals, which only the main thread can",
            remedy=f"call it in the main thread, or {instead}",
        )


def use_options(place: str, storage_options: Mapping[str, Any] | None) -> None:
    """Apply options to the storage of `place`, from now on. UsageError for a path."""
    options = arguments.mapping("storage_options", storage_options)
    if not options:
        return
    if not urls.is_remote(place):
        raise UsageError(
            "storage options are only for URLs", path=place, why="this is a local folder", remedy="leave them out"
        )
    scheme = urls.protocol(place)
    _put("s3" if scheme == "s3a" else scheme, options)


def target(to: str | os.PathLike[str], storage_options: Mapping[str, Any] | None) -> str:
    """Where a run is to be made, with these options of its storage. UsageError for what can't be such a place."""
    typed = arguments.target("to", to)
    use_options(urls.checked(typed), storage_options)
    if urls.is_remote(typed):
        urls.check_protocol(urls.checked(typed))
    return typed


def _put(scheme: str, options: Mapping[str, Any]) -> None:
    """Merge options into the environment variable of a protocol. They replace its values."""
    name = f"FSSPEC_{scheme.upper()}"
    try:
        merged = json.dumps({**_said(name), **options})
    except (TypeError, ValueError) as error:  # it never shows a value
        raise UsageError(
            "storage_options can't be handed on to other processes",
            why=str(error),
            remedy="give values as JSON has them: texts, numbers, lists, dicts",
        ) from None
    for key in list(os.environ):
        if key.upper() in {f"{name}_{option.upper()}" for option in options}:
            del os.environ[key]  # fsspec would prefer it
    os.environ[name] = merged
    if (config := sys.modules.get("fsspec.config")) is not None:  # it has read the environment already
        config.conf.setdefault(scheme, {}).update(options)


def _said(name: str) -> dict[str, Any]:
    try:
        found = json.loads(os.environ.get(name) or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"the environment variable {name} is not a JSON object", remedy="correct or unset it")
    return found


class Place:
    """The files of a workspace, and the text by which a person named it."""

    def __init__(
        self,
        store: Store,
        typed: str,
        tell: Callable[[str], None] | None = None,
        *,
        is_patient: bool = False,
        was_found: bool = False,
    ):
        """`typed` is empty for the current folder. `tell` is called with a line of text for people before the result is
        there, such as what it waits for. `is_patient`: the store repeats requests as long as a run does. `was_found`: a
        search has found it to be a workspace."""
        self.store, self.typed = store, typed
        self.is_patient, self.was_found = is_patient, was_found
        self.tell = tell or (lambda line: None)
        self._listed_at = time.monotonic()  # a handle is made with a listing of its files

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {visible(self.url)}>"

    @property
    def url(self) -> str:
        """An absolute path, or a URL."""
        return self.store.url

    def command(self, name: str, *words: str) -> str:
        """A command about this workspace that the same person can type. Safe to print."""
        return visible(shlex.join(["satchel", name, *([self.named] if self.named else []), *words]))

    @property
    def named(self) -> str:
        """As a command of this process can name it: as it was typed, if that still leads there, since the current
        folder may be another one by now. Empty for the current folder."""
        leads_there = urls.is_remote(self.typed) or os.path.realpath(self.typed or ".") == self.url
        return self.typed if leads_there else self.url

    def store_of_a_run(self) -> Store:
        """The store for a run. It repeats requests longer than a store for a person at a terminal."""
        self._listed_at = -math.inf
        if self.is_patient or not self.store.abilities.remote:
            return self.store
        return open_store(urls.checked(self.typed))

    def look_now(self) -> None:
        """See the files as they are now. In a bucket that costs a request, so the first look after `open` uses the
        listing that it has made, if nothing has run since."""
        if time.monotonic() - self._listed_at > _FRESH:
            self.store.refresh()
        self._listed_at = -math.inf

    def look_again(self, seconds: float) -> Steps[None]:
        """Wait before the next look at the files; longer if a look costs requests."""
        yield max(seconds, REMOTE_LOOK) if self.store.abilities.remote else seconds
        self.store.refresh()


def holder_to_replace(place: Place) -> str:
    """The process that would lose a workspace in a bucket, in words; empty if none has it. UsageError on a disk."""
    store = place.store
    if store.abilities.lock:
        raise UsageError(
            "there is nothing to take over on a disk",
            path=store.url,
            why="its lock is free as soon as the process that holds it ends",
            remedy=f"stop that process: `{place.command('stop')}`",
        )
    store.refresh()
    held = lease.read(store)
    return "" if held is None or lease.has_died(held) else describe_holder(store, held)


def check_free(store: Store) -> None:
    """LeaseHeld, without waiting, if the holder's last heartbeat is recent. On a disk the lock tells."""
    if not store.abilities.lock and (held := lease.holder(store)) is not None:
        raise LeaseHeld("another process is running this workspace", path=store.url, why=describe_holder(store, held))


def wait_until_free(place: Place) -> Steps[None]:
    """Wait until the workspace may be taken and no program is saving one of its files. LeaseHeld if its holder is
    alive. Calls `tell` with what it waits for."""
    from ...workspace.inbound import describe_saving, until_saved
    from ...workspace.lifecycle import acquire  # slow, and most handles never wait

    store = place.store
    told: set[str] = set()
    for pause, path in until_saved(store):
        if path not in told:
            place.tell(f"waiting: {describe_saving(path)}")
        told.add(path)
        yield pause
    is_told = False
    for pause, held in acquire.until_free(store):
        if not is_told:
            place.tell(f"{describe_holder(store, held)}; waiting {held.ttl:.0f} s for its heartbeat")
            is_told = True
        yield pause


def describe_holder(store: Store, held: Lease) -> str:
    """Which process has it, since when, and its last heartbeat."""
    beaten = store.trace(lease.PATH).at
    last = f", last heartbeat at {since(beaten)}" if held.ttl and beaten else ""
    return visible(f"{held.process} has it since {since(held.since)}{last}")


def root_of(typed: str, storage_options: Mapping[str, Any] | None) -> Store | None:
    """The store that holds workspaces at a URL; None for a folder. UsageError if it is neither."""
    place = urls.checked(typed)
    if urls.is_remote(place):
        return reach(place, storage_options)
    use_options(place, storage_options)
    if not os.path.isdir(place):
        if os.path.exists(place):
            raise UsageError("is a file, not a folder", path=typed)
        raise NoWorkspace("no such folder", path=typed)
    return None


def reach(typed: str, storage_options: Mapping[str, Any] | None, patience: float | None = PATIENCE) -> Store:
    """The store at a path or URL. Reports a wrong address or wrong credentials at once."""
    place = urls.checked(typed)
    use_options(place, storage_options)
    if not urls.is_remote(place):
        return open_store(place)
    urls.check_protocol(place)
    store = open_store(place, patience=patience)
    store.refresh()
    return store


# Methods that wait

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
