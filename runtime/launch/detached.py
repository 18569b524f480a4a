"""Runs in other processes: one that this process supervises, one in the background, or all that lie below a folder or
URL, each in a process of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import UsageError, arguments
from ...workspace.state import EXIT_CODES
from ..live import release
from ..status import Place, check_main_thread, root_of
from ..supervision.child import Background, Order, background
from ..supervision.child import supervise as supervised

if TYPE_CHECKING:
    from ..supervision.serve import ServeEvent

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
        from ..steps import canonical  # slow, and a supervisor needs nothing else of it

        return canonical(self.input, "input")


class SupervisionResult(Struct, frozen=True):
    """How a run ended in its process. docs/commands.md lists each `exit_code`. `why`: what that process
    could not say itself, because it was killed or given up; may be empty."""

    exit_code: int
    why: str

    @property
    def status(self) -> str:
        """How the run has stopped, by the exit code; "failed" for any other code."""
        return next((status for status, code in EXIT_CODES.items() if code == self.exit_code), "failed")


def supervise(place: Place, options: StartOptions, tell: Callable[[str], None] | None) -> SupervisionResult:
    """Supervise the run until it has stopped, or is given up."""
    arguments.function("tell", tell)
    check_main_thread("supervise()", "call `detach()`, which returns once the run is going in the background")
    restart = replace(options, resume=False, take_over=False, adopt=False)
    order = Order(options.words(place), restart.words(place), options.drain_timeout, given=options.given)
    ended = supervised(place.store_of_a_run(), order, tell or place.tell)
    assert ended.code is not None
    return SupervisionResult(ended.code, ended.why)


def detach(place: Place, options: StartOptions) -> Background:
    """Start it in the background, and return when it is active or has ended."""
    release()  # nothing of this process has to be stopped in order
    return background.detach(place.store_of_a_run(), options.words(place), options.given)


def serve(
    root: str | os.PathLike[str],
    *,
    at_most: int | None = None,
    once: bool = False,
    drain_timeout: float | None = None,
    tell: Callable[[ServeEvent], None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Start all new and interrupted runs below `root`, and resume those that were answered, released or have slept,
    each in its own process. Ends when SIGINT or SIGTERM comes and all have stopped. Call it in the main thread.

    `at_most` runs at a time; None: one for each core, and at least 2. `once`: until nothing runs and nothing is due.
    `drain_timeout`: seconds that a stop waits for running work. `tell` is called with events of each run. UsageError if
    `root` is no folder.
    """
    from ..supervision.serve import Server, usable_cores  # slow, and one run needs none of it
    from ..supervision.serve import serve as turn

    at_most = arguments.count("at_most", at_most, least=1) or max(2, usable_cores())
    drain_timeout = arguments.seconds("drain_timeout", drain_timeout)
    arguments.function("tell", tell)
    typed = arguments.place("root", root)
    arguments.no_loop("serve", "start `satchel serve` as a process of its own")
    check_main_thread("serve()", "start `satchel serve` as a process of its own")
    store = root_of(typed, storage_options)
    server = Server(
        typed if store is None else store.url, at_most, tell or (lambda event: None), drain_timeout, store=store
    )
    turn(server, once=once)
