"""Records of the calls of steps and effects: start, outcome, progress, cut-off text."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw

from .base import NOTHING, Failure, Key, OfCall


class StepStarted(OfCall, frozen=True, kw_only=True, tag="step.started"):
    """An effect is about to begin. Without a later outcome it is in doubt."""

    idempotency_key: str
    arguments: Raw = NOTHING  # left out when they are long
    schema: str = ""  # of the result that it will have, in .satchel/schemas/results/


class StepCompleted(OfCall, frozen=True, kw_only=True, gc=False, tag="step.completed"):
    """A call has returned. Its result is `result`, or the blob named `blob`. There may be tens of thousands, and they
    can't form cycles, so the garbage collector skips them."""

    effect: bool = False
    result: Raw = NOTHING
    blob: str = ""
    ms: int = 0
    how: Literal["returned", "interrupted", "restarted", "verified", "resolved", "accepted", "edited", "answered"] = (
        "returned"
    )
    model: str = ""  # the fallback that answered, if the first model did not
    schema: str = ""  # of the result


class StepFailed(OfCall, frozen=True, kw_only=True, tag="step.failed"):
    """A call has raised. `not_done` says that an effect has certainly not happened.

    A `final` one is the outcome of the call: it is raised again at a re-entry, unless a later record names the call
    among its `calls`. `cancelled`: by the agent itself, after `ms`; at a re-entry the call first waits that long to be
    cancelled.
    """

    error: Failure
    attempt: int = 1
    effect: bool = False
    not_done: bool = False
    final: bool = False
    cancelled: bool = False
    ms: int = 0
    calls: tuple[Key, ...] = ()  # inner calls whose exception ended it: they run again
    schema: str = ""  # of the result that it would have had


class StepRetry(OfCall, frozen=True, kw_only=True, tag="step.retry"):
    """A call has failed for the `attempt`-th time, and is tried again in `wait` seconds."""

    error: Failure
    attempt: int
    wait: float


class StepProgress(OfCall, frozen=True, kw_only=True, tag="step.progress"):
    """The progress of an unfinished call (`run.progress`)."""

    value: Raw


class PartialPromoted(OfCall, frozen=True, kw_only=True, tag="partial.promoted"):
    """The text that a crash or an error left of a streamed answer was put into `file`, for attempt `attempt` + 1."""

    attempt: int
    file: str
    characters: int
    damaged: bool
    cut_off_at: str
    cut_off_by: str
    edited: bool = False  # a person has changed the text before
