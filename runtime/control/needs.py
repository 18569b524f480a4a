"""What a run wants from a person: the one definition for lists, screens and programs."""

from __future__ import annotations

from ...workspace.base import one_line
from .standing import Standing

STATES = (
    "waiting",
    "failed",
    "damaged",
    "interrupted",
    "running",
    "draining",
    "paused",
    "sleeping",
    "new",
    "completed",
    "cancelled",
    "moved",
)
"""The states of runs, those that need a person first."""

_COMMANDS = {"new": "run", "interrupted": "resume", "failed": "resume", "damaged": "check", "waiting": "resume"}


def wanted(standing: Standing) -> str:
    """What a person can do so that the run goes on: `an answer: a1, a2`, or the name of a command. Empty: nothing.
    Safe to print."""
    if standing.moved:
        return f"see {one_line(standing.moved.to)}"
    if standing.wants_merge:
        return "merge"  # first: until then neither a start nor an answer is taken
    if asked := _asked(standing):
        return "an answer: " + ", ".join(asked)
    if standing.mistake:
        return "fix workspace.yaml"
    if standing.state == "paused":
        return "run" if standing.moment and standing.moment.is_new else "resume"
    if standing.has_tasks:
        return "resume"
    return _COMMANDS.get(standing.state, "")


def needs_person(standing: Standing) -> bool:
    """Whether the run asks for something, or rests until a person does something. Not if it has never begun, has
    moved, or is paused until a time."""
    if standing.state in ("new", "moved", "cancelled"):
        return False
    if standing.state == "paused" and not (standing.wants_merge or _asked(standing) or standing.pause_problem):
        return not _ends_by_itself(standing)
    return bool(wanted(standing)) or standing.problem is not None


def by_need(standing: Standing) -> tuple[bool, int]:
    """Sorts runs: those that need a person first, of these those that ask something."""
    is_asking = standing.wants_merge or bool(_asked(standing))
    needs = needs_person(standing)
    return not needs, 0 if needs and is_asking else STATES.index(standing.state)


def _asked(standing: Standing) -> list[str]:
    """The ids of its open questions, those about effects in doubt first."""
    moment = standing.moment
    return [*moment.doubts, *moment.approvals] if moment is not None and standing.state != "cancelled" else []


def _ends_by_itself(standing: Standing) -> bool:
    pause = standing.wish or (standing.moment.pause if standing.moment else None)
    return pause is not None and bool(pause.until)
