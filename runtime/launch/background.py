"""Runs in other processes: one that this process supervises, one in the background, or all that lie below a folder or
URL, each in a process of its own or, where that is allowed, in one that several share. And what should run now below
such a root, for programs that start runs by an engine of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import SatchelError, UsageError, arguments
from ...workspace.inspect import define
from ...workspace.state import EXIT_CODES
from ..live import release
from ..status import Place, check_main_thread, root_of
from ..supervision import (
    Background,
    KeeperProcess,
    Order,
    child,
    environment,
    interpreter,
    supervise_aside,
    wants_keeper,
)
from ..supervision import supervise as supervised

if TYPE_CHECKING:
    from ...workspace.store import Store
    from ..supervision import Census, Isolate, Known, ServeEvent, ServeResult, SharedProcesses
    from .templates import NewWorkspace

_SHARED = 20
"""Runs for each core, where they share processes."""

_SHOWN = ("--json", "--quiet", "-q", "--traceback")
"""The options that say what the other process prints. All the rest are arguments."""


class StartOptions(Struct, frozen=True, kw_only=True):
    """How to start a run in another process. See `Handle.supervise`. UsageError for a value that is not valid."""

    resume: bool = False
    accept_drift: bool = False
    drain_timeout: float | None = None  # seconds
    from_checkpoint: bool = False
    take_over: bool = False
    adopt: bool = False
    keeper: bool = False  # also without `keeper: true` in workspace.yaml
    shown: Sequence[str] = ()  # the options that say what is printed
    input: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        arguments.seconds("drain_timeout", self.drain_timeout)
        if self.resume and self.input is not None:
            raise UsageError("a run can't be resumed with `input`", why="it has its arguments since its first start")
        if isinstance(self.shown, str) or not isinstance(self.shown, Collection):
            raise UsageError(f"options can't be {self.shown!r}", remedy='give a list of texts, as in ["--quiet"]')
        if unknown := [each for each in self.shown if each not in _SHOWN]:
            raise UsageError(
                f"options can't have {unknown[0]!r}",
                why="they only say what is printed",
                remedy=f"there are {', '.join(_SHOWN)}; the rest are arguments of the method",
            )

    def words(self, place: Place) -> list[str]:
        """The command line."""
        flags = {
            "--accept-drift": self.accept_drift,
            "--from-checkpoint": self.from_checkpoint and self.resume,
            "--take-over": self.take_over,
            "--adopt": self.adopt,
            "--keeper": self.keeper,
        }
        patience = ["--drain-timeout", str(self.drain_timeout)] if self.drain_timeout is not None else []
        patience += ["--input", "-"] if self.input is not None else []
        command = "resume" if self.resume else "run"
        named = ["--", place.named] if place.named else []
        return [command, *self.shown, *(flag for flag, is_on in flags.items() if is_on), *patience, *named]

    @property
    def given(self) -> bytes:
        """What the other process reads from stdin."""
        if self.input is None:
            return b""
        from ..agent import canonical  # slow, and a supervisor needs nothing else of it

        return canonical(self.input, "input")


_PATIENCE = 60.0
"""Seconds that the code of an agent may take to be imported, where a person waits for it."""


def new_aside(
    source: str, to: str, *, input: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None
) -> NewWorkspace:
    """`new` for a program that must not run code of a workspace: with an input, another process imports the agent of
    the template `source`, a folder, and makes the workspace `to`. UsageError as of `new`."""
    from .templates import NewWorkspace, new  # only a program that makes runs needs it

    if input is None:
        return new(source, to, settings=settings)
    from ..agent import canonical

    words = [word for key, value in (settings or {}).items() for word in ("--set", f"{key}={json.dumps(value)}")]
    command = [*interpreter(), "new", "--json", "--input", "-", *words, "--", source, to]
    try:
        done = subprocess.run(
            command,
            input=canonical(input, "input"),
            capture_output=True,
            env=environment(),
            start_new_session=True,
            timeout=_PATIENCE,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            "the agent of the template can't be asked", why=f"its import took more than {_PATIENCE:.0f} s"
        ) from None
    try:
        said = msgspec.json.decode(done.stdout)
        if done.returncode == 0:
            return NewWorkspace(**said)
        why = said["error"]["message"]
    except (msgspec.MsgspecError, KeyError, TypeError):
        lines = done.stderr.decode(errors="replace").splitlines() or [f"exit code {done.returncode}"]
        raise UsageError("the agent of the template can't be asked", why=lines[-1]) from None
    raise UsageError(why)


class SupervisionResult(Struct, frozen=True):
    """How a run ended in its process. docs/commands.md lists each `exit_code`. `why`: what that process
    could not say itself, because it was killed or given up, or has said in its log; may be empty."""

    exit_code: int
    why: str

    @property
    def status(self) -> str:
        """How the run has stopped, by the exit code; "failed" for any other code."""
        return next((status for status, code in EXIT_CODES.items() if code == self.exit_code), "failed")


_sharing = threading.Lock()  # protects both
_processes: SharedProcesses | None = None  # that the runs share which this program supervises now
_sharers = 0


@contextmanager
def _shared_processes() -> Iterator[SharedProcesses]:
    """Those of this program. They end with the last body."""
    global _processes, _sharers
    from ..supervision import shared_processes

    with _sharing:
        _sharers += 1
        processes = _processes = _processes or shared_processes(".", lambda text: None)  # each of its runs says it
    try:
        yield processes
    finally:
        with _sharing:
            _sharers -= 1
            is_last = not _sharers
            if is_last:
                _processes = None
        if is_last:
            processes.end()


def _may_share(store: Store, options: StartOptions, isolate: Isolate | None) -> bool:
    """A shared process is told where the run is, and no more."""
    if replace(options, shown=(), drain_timeout=None) != StartOptions():
        return False
    from ..supervision import may_share

    try:
        return may_share(isolate, define(store))
    except (SatchelError, OSError):
        return False  # the start itself says what is wrong


def supervise(
    place: Place,
    options: StartOptions,
    tell: Callable[[str], None] | None,
    should_stop: Callable[[], bool] | None = None,
    isolate: Isolate | None = None,
) -> SupervisionResult:
    """Supervise the run until it has stopped, or is given up."""
    arguments.function("tell", tell)
    arguments.function("should_stop", should_stop)
    _check_isolate(isolate)
    if should_stop is None:
        check_main_thread("supervise()", "give it `should_stop`, or call `detach()`")
    store = place.store_of_a_run()
    restart = replace(options, resume=False, take_over=False, adopt=False)
    say = tell or place.tell
    with closing(KeeperProcess(say)) as keeper:
        order = Order(
            options.words(place),
            restart.words(place),
            options.drain_timeout,
            given=options.given,
            keeper=keeper,
            is_kept=options.keeper,
        )
        if should_stop is None:
            ended = supervised(store, order, say)
            assert ended.code is not None
            return SupervisionResult(ended.code, ended.why)
        order = replace(order, is_only=False, output=partial(child.open_log, store))
        with ExitStack() as stack:
            stack.enter_context(child.uploaded_log(store))
            if _may_share(store, options, isolate):
                processes = stack.enter_context(_shared_processes())
                warn = say if wants_keeper(store) else None
                order = replace(order, sharing=processes.sharing(store.url, options.drain_timeout, say, warn))
            ended = supervise_aside(store, order, say, should_stop)
    assert ended.code is not None
    return SupervisionResult(ended.code, ended.why or ended.error)


def detach(place: Place, options: StartOptions) -> Background:
    """Start it in the background, and return when it is active or has ended."""
    release()  # nothing of this process has to be stopped in order
    return child.detach(place.store_of_a_run(), options.words(place), options.given)


def serve(
    root: str | os.PathLike[str],
    *,
    at_most: int | None = None,
    group_limits: Mapping[str, int] | None = None,
    once: bool = False,
    isolate: Isolate | None = None,
    keeper: bool = False,
    drain_timeout: float | None = None,
    tell: Callable[[ServeEvent], None] | None = None,
    census: Census | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ServeResult:
    """Start all new and interrupted runs below `root`, and resume those that were answered, released or have slept,
    each in its own process. Ends when SIGINT or SIGTERM comes and all have stopped. Call it in the main thread.

    If Satchel is upgraded meanwhile, it starts nothing more, and ends when what runs has ended: `is_outdated`. Start it
    again in a new process, since this one has loaded the earlier version.

    `at_most` runs at a time; None: one for each core, and at least 2, or 20 for each core with `isolate="none"`.
    `group_limits`: how many runs of a `group:` of workspace.yaml run at a time, by group; `"*"` is for each group that
    has no limit of its own. `once`: until nothing runs and nothing is due; `left` names those that are due and could
    not be started. `isolate`: with "none" runs share processes, except those whose workspace.yaml says `isolate:
    process`; with "process" none does; None: those share whose workspace.yaml says `isolate: none`.
    `keeper`: hold the model calls of all runs that have a process of their own, as `keeper: true` of a workspace.yaml
    does for one. `drain_timeout`: seconds that a stop waits for running work. `tell` is called with events of each run.
    `census` is kept current with the numbers of all runs. UsageError if `root` is no folder.
    """
    from ..status import resting_row  # these are slow, and one run needs none of them
    from ..supervision import Server, usable_cores
    from ..supervision import serve as turn

    _check_isolate(isolate)
    cores = usable_cores()
    at_most = arguments.count("at_most", at_most, least=1) or (_SHARED * cores if isolate == "none" else max(2, cores))
    drain_timeout = arguments.seconds("drain_timeout", drain_timeout)
    arguments.function("tell", tell)
    typed = arguments.place("root", root)
    arguments.no_loop("serve", "start `satchel serve` as a process of its own")
    check_main_thread("serve()", "start `satchel serve` as a process of its own")
    store = root_of(typed, storage_options)
    server = Server(
        typed if store is None else store.url,
        at_most,
        tell or (lambda event: None),
        drain_timeout,
        store=store,
        census=census,
        isolate=isolate,
        group_limits=group_limits,
        is_kept=keeper,
        row_of=resting_row,
    )
    return turn(server, once=once)


def _check_isolate(isolate: object) -> None:
    if isolate not in (None, "process", "none"):
        raise UsageError(f"isolate can't be {isolate!r}", remedy="use 'process' or 'none'")


_TURN = 1.0  # seconds after which it sees whether the time of a run has come
_DIGITS = 32


class DueRun(Struct, frozen=True):
    """A run that should be started now: `satchel.run(url)` does it, in any process that reaches the storage."""

    url: str
    folder: str  # as it was found below the root
    run_id: str
    group: str  # of workspace.yaml; empty: none
    priority: int
    why: str  # for people
    since: datetime  # when it became due
    signature: str  # a hash of the files that people and programs write; another one as soon as one of them changes
    opening: str  # the nonce of its last opening; empty for a new run

    @property
    def key(self) -> str:
        """A name for the task that starts it, of 32 hexadecimal digits: equal at each look and in each process until
        the run was opened or one of its files has changed."""
        return _hash([self.url, self.signature, self.opening])


class DueLook(Struct, frozen=True):
    """One look at a root: the `runs` that are due, those that have waited longest first, also those that an earlier
    look has told of and no process has started since. `next_at`: the earliest time at which another run becomes due,
    although no file changes until then; None if no run waits for a time."""

    runs: tuple[DueRun, ...]
    next_at: datetime | None


def due(
    root: str | os.PathLike[str],
    *,
    once: bool = False,
    tell: Callable[[ServeEvent], None] | None = None,
    census: Census | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> AsyncGenerator[DueLook, None]:
    """Look at the runs below `root`, a folder or URL, again and again, and yield at each look those that should run
    now: `async for look in satchel.due(root)`.

    A run is due if `satchel serve` would start it: if it is new, was interrupted, or was answered or released, if its
    sleep or pause is over, or if it has a task. A run that a signal has paused is due, too, since it was the end of
    its worker. As `serve` does, this creates the due tasks of schedules. It takes no lock, runs no code of a run, and
    starts nothing.

    It looks each second on a disk, and every 4 seconds for each request of a listing in a bucket, and when a run's
    time has come. With `once` it ends as soon as a look leaves nothing in doubt: in a bucket it takes half a minute to
    see whether the process that a lease names is alive. A look that fails is made again, and until one succeeds `runs`
    are those of the last one that did. `tell` is called on the loop with what is wrong with a run or with the root, a
    `ServeEvent`. `census` is kept current with the numbers of all runs.

    Not guaranteed: that a run is due still when it is started. `satchel.run` and `run_async` look again: they refuse a
    run that another process has (`LeaseHeld`), and leave alone one that is completed, paused, waits or sleeps.

    UsageError if `root` is no folder, StorageFailed if a bucket does not answer at the beginning.
    """
    arguments.function("tell", tell)
    return _looks(arguments.place("root", root), once, tell or (lambda event: None), census, storage_options)


async def _looks(
    typed: str,
    once: bool,
    tell: Callable[[ServeEvent], None],
    census: Census | None,
    storage_options: Mapping[str, Any] | None,
) -> AsyncGenerator[DueLook, None]:
    import asyncio  # one run that is supervised needs none of these

    from ..status import resting_row
    from ..supervision import Lookout

    events: list[ServeEvent] = []  # of a look, which another thread makes
    store = await asyncio.to_thread(root_of, typed, storage_options)
    where = typed if store is None else store.url
    lookout = Lookout(where, store, events.append, after_signals=True, census=census, row_of=resting_row)
    if once:
        lookout.index = None
    while True:
        if (look := lookout.next_look()) is not None:
            await asyncio.to_thread(look)
            for event in events:
                tell(event)
            events.clear()
            found = [*lookout.known.values()]
            waiting = sorted((each for each in found if each.due_since), key=lambda each: (each.due_since, each.folder))
            yield DueLook(
                (*map(_due_run, waiting),), min((at for known in found if (at := known.next_at)), default=None)
            )
            if once and not lookout.has_failed and not any(known.may_be_held for known in found):
                return
        await asyncio.sleep(max(0.0, min(lookout.looks_at - time.monotonic(), _TURN)))


def _due_run(known: Known) -> DueRun:
    return DueRun(
        url=known.store.url,
        folder=known.folder,
        run_id=known.run_id,
        group=known.group,
        priority=known.priority,
        why=known.verdict.why,
        since=datetime.fromtimestamp(known.due_since, UTC),
        signature=_hash(known.signature),
        opening=known.verdict.opening,
    )


def _hash(value: object) -> str:
    return sha256(json.dumps(value).encode()).hexdigest()[:_DIGITS]
