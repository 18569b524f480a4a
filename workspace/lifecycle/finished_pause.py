"""How long a finished pause lasted, and how old its checkpoint is."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from ..base import SatchelError
from ..state import Pause, checkpoint
from ..store import Store


class Told(NamedTuple):
    says: tuple[str, ...]
    seconds: float  # how long the pause was
    checkpoint_age: float  # seconds; 0 if nothing tells


def told(pause: Pause, checkpoint_at: str, now: str) -> Told:
    """How long a pause lasted that ends `now`, and how old its checkpoint is. Times are UTC, ISO 8601; an empty one is
    not known."""
    seconds = _between(pause.paused_at or pause.requested_at, now)
    age = _between(checkpoint_at, now)
    says = [f"the pause was {_span(seconds)} long ({pause.reason}, by {pause.by})"]
    if checkpoint_at:
        says.append(f"the checkpoint is {_span(age)} old")
    if pause.until and (late := _between(pause.until, now)):
        says.append(f"it was expected to end {_span(late)} ago")
    return Told(tuple(says), seconds, age)


def newest_checkpoint_at(store: Store) -> str:
    """When the newest checkpoint was written, as far as the storage tells; else empty."""
    try:
        paths = checkpoint.paths(store)
        return store.trace(paths[-1]).at if paths else ""
    except SatchelError:
        return ""


def _between(earlier: str, later: str) -> float:
    if not earlier or not later:
        return 0.0
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())


def _span(seconds: float) -> str:
    """In the two largest units: `2 h 5 min`."""
    left = round(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
        if len(parts) == 2:
            break
    return " ".join(parts) or "0 s"
