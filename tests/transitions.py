"""Notes what happens to the runs of a test, and whether their table of statuses knows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from satchel.workspace import journal
from satchel.workspace.journal import Line
from satchel.workspace.state.run_state import Moment
from satchel.workspace.state.statuses import TRANSITIONS, Act, Status

Change = tuple[Act, Status, Status]
"""What has happened, and the status before and after it."""


def act_of(line: Line) -> Act | None:
    match line.record:
        case journal.Opened(why="run"):
            return "started"
        case journal.Opened(why="hold"):
            return "held"
        case journal.Opened(why="replay"):
            return "replayed"
        case journal.Paused():
            return "paused"
        case journal.Closed(status=str(status)):
            return cast("Act", status)
        case journal.PauseRequested():
            return "asked to pause"
        case journal.Resumed():
            return "pause withdrawn"
        case journal.Rewound():
            return "rewound"
        case journal.Edited(step=step) if step is not None:
            return "step edited"
    return None


SOMETIMES: set[Act] = {"asked to pause", "pause withdrawn", "rewound", "step edited"}
"""Records that also come where they change no status."""


class Noted:
    def __init__(self) -> None:
        self.changes: set[Change] = set()

    def unknown(self) -> set[Change]:
        """The changes that are not in the table."""
        return {change for change in self.changes if not _is_known(*change)}


@contextmanager
def noting() -> Iterator[Noted]:
    """Each record that this process writes or reads comes by."""
    noted, add = Noted(), Moment.add

    def add_and_note(moment: Moment, line: Line) -> None:
        before = moment.status
        add(moment, line)
        if (act := act_of(line)) is not None or moment.status != before:
            noted.changes.add((cast("Act", act), before, moment.status))

    Moment.add = add_and_note  # type: ignore[method-assign]
    try:
        yield noted
    finally:
        Moment.add = add  # type: ignore[method-assign]


def _is_known(act: Act, before: Status, now: Status) -> bool:
    if act in SOMETIMES and now == before:
        return True
    return act in TRANSITIONS and before in TRANSITIONS[act].of and now == TRANSITIONS[act].to
