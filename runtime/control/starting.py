"""Starts a run in a process of its own: with this process to look after it, or in the background."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...workspace.base import urls
from ..engine import release
from ..supervision.child import EXIT_CODES, Background, Order, background
from ..supervision.child import supervise as supervised
from .place import Place


@dataclass(frozen=True, slots=True)
class Start:
    """How a run is to be started in another process. See `Handle.supervise`."""

    resume: bool = False
    accept_drift: bool = False
    drain_timeout: float | None = None  # seconds
    from_checkpoint: bool = False
    take_over: bool = False
    adopt: bool = False

    def words(self, place: Place, shown: Sequence[str]) -> list[str]:
        """The command line, with `shown`: the options that say what is printed."""
        flags = {
            "--accept-drift": self.accept_drift, "--from-checkpoint": self.from_checkpoint and self.resume,
            "--take-over": self.take_over, "--adopt": self.adopt,
        }  # fmt: skip
        patience = ["--drain-timeout", str(self.drain_timeout)] if self.drain_timeout is not None else []
        command = "resume" if self.resume else "run"
        named = ["--", _named(place)] if place.typed else []
        return [command, *shown, *(flag for flag, is_on in flags.items() if is_on), *patience, *named]


@dataclass(frozen=True, slots=True)
class Supervised:
    """How a run ended in its process. `code` is the exit code: those of docs/commands.md. `why`: what that process
    could not say itself, since it was killed or given up; may be empty."""

    code: int
    why: str

    @property
    def status(self) -> str:
        """How the run has stopped, by the exit code; "failed" if that is of no run."""
        return next((status for status, code in EXIT_CODES.items() if code == self.code), "failed")


def supervise(place: Place, start: Start, shown: Sequence[str], tell: Callable[[str], None] | None) -> Supervised:
    """Look after the run until it has stopped, or is given up."""
    restart = replace(start, resume=False, take_over=False, adopt=False)
    order = Order(start.words(place, shown), restart.words(place, shown), start.drain_timeout)
    ended = supervised(place.store_of_a_run(), order, tell or place.tell)
    assert ended.code is not None
    return Supervised(ended.code, ended.why)


def detach(place: Place, start: Start, shown: Sequence[str]) -> Background:
    """Start it in the background, and return once it is running, or over."""
    release()  # nothing of this process has to be stopped in order
    return background.detach(place.store_of_a_run(), start.words(place, shown))


def _named(place: Place) -> str:
    """As it was named, if that still leads there: the current folder may be another one by now."""
    typed = place.typed
    if urls.is_remote(typed) or os.path.realpath(os.path.expanduser(urls.local(typed))) == place.url:
        return typed
    return place.url
