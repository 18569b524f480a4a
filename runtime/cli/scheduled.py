"""What `status` tells of `schedule:`: when each time was and will be, and whose clock can't be right."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ...workspace import firing
from ...workspace.definition import Start
from ...workspace.errors import SatchelError
from ...workspace.parts import Fired
from ...workspace.store import Store
from .standing import Standing
from .words import since

_UNOPENED = "settled by a start whose agent did not open its inbox"


def as_words(store: Store, standing: Standing) -> Iterator[str]:
    from .. import windows

    for start, last, following in _starts(store, standing):
        settled = f", {_UNOPENED}" if last and last.unopened else ""
        said = f"last {since(last.due)}{settled}; " if last else ""
        yield f"{start.name}: {said}next {since(following) if following else 'never'}"
    has_schedule = standing.definition is not None and bool(standing.definition.schedule)
    if has_schedule and standing.moment and (ahead := windows.ahead(standing.moment, datetime.now(UTC))):
        yield windows.said_ahead(ahead)


def as_json(store: Store, standing: Standing) -> list[dict[str, Any]]:
    return [
        {
            "name": start.name, "next": following or None, "last": last.due if last else None,
            "unopened": last.unopened if last else None,
        }
        for start, last, following in _starts(store, standing)
    ]  # fmt: skip


def _starts(store: Store, standing: Standing) -> Iterator[tuple[Start, Fired | None, str]]:
    """Each schedule, what was taken of it last, and its next time."""
    from .. import windows

    moment, definition = standing.moment, standing.definition
    if moment is None or definition is None or moment.status == "cancelled":
        return
    try:
        windows.check(store, definition)
    except SatchelError:  # `check` tells, and so does the next start
        return
    for start in definition.schedule:
        following = windows.next_start([start], datetime.now(UTC))
        last = moment.fired.get(start.name, [])[-1:]
        yield start, last[0] if last else None, firing.firing_at("", following).due if following else ""
