"""Conflicts of two versions of a plan, and the side that resolves them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ....schemas import short
from ..task import Mark

Side = Literal["ours", "theirs"]

Why = Literal["mark", "text", "prose", "untick_without_base", "removal_without_base", "everything_removed"]


class PlanConflict(Struct, frozen=True):
    """`line` counts from 1 in theirs; 0 for what is not there. `text` is that of the item or of the line.

    `ours` and `theirs` are the marks, if these conflict. `str()` is one line for people.
    """

    line: int
    text: str
    why: Why
    ours: Mark | None = None
    theirs: Mark | None = None

    def __str__(self) -> str:
        where = f"line {self.line}, {short(self.text)}" if self.line else short(self.text)
        match self.why:
            case "mark":
                the_run = f"has changed it to {self.ours}" if self.ours else "has removed it"
                return f"{where}: the run {the_run}, the file says {self.theirs}"
            case "text":
                return f"{where}: the run and the file have both changed this item or its place"
            case "prose":
                return f"{where}: the run and the file have both changed these lines, in different ways"
            case "untick_without_base":
                return (
                    f"{where}: it is {self.ours}, the file says {self.theirs}. "
                    "Satchel can't tell whether to do it again or whether the file is old"
                )
            case "removal_without_base":
                return f"{where}: the file lacks this item. Satchel can't tell whether a person dropped or forgot it"
            case "everything_removed":
                return "the file has no items left; a plan without items is not a finished plan"


class Questions:
    """Collects conflicts, or resolves them."""

    def __init__(self, prefer: Side | None):
        self.prefer = prefer
        self.open: list[PlanConflict] = []

    def ask(self, conflict: PlanConflict) -> Side:
        """The side to use. Without a preference that is ours, and the result is not used."""
        if self.prefer is None:
            self.open.append(conflict)
        return self.prefer or "ours"
